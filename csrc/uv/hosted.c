/* SPDX-License-Identifier: MIT */
#include <uv.h>

#include "uv/hosted.h"

#include "base/mem.h"
#include "uv/connection.h"
#include "uv/listener.h"

int kw_hosted_open(kw_hosted **owner, kw_loop *loop, const kw_engine *engine, kw_server *server) {
  kw_hosted *hosted = kw_alloc(sizeof *hosted);
  if (hosted == NULL) return UV_ENOMEM;
  *hosted = (kw_hosted){.loop = loop, .engine = engine, .server = server, .owner = owner};
  kw_link_init(&hosted->listeners);
  kw_link_init(&hosted->connections);
  kw_link_add(&loop->hosted, &hosted->link);
  engine->set_bell(server, kw_loop_bell(loop));
  *owner = hosted;
  return 0;
}

void kw_hosted_close(kw_hosted *hosted, const char *why) {
  while (!kw_link_is_alone(&hosted->listeners)) {
    kw_listener_close(KW_CONTAINER_OF(hosted->listeners.next, kw_listener, link));
  }
  while (!kw_link_is_alone(&hosted->connections)) {
    kw_connection_close(KW_CONTAINER_OF(hosted->connections.next, kw_connection, link), why);
  }
  kw_link_remove(&hosted->link);
  *hosted->owner = NULL;
  kw_free(hosted);
}

kw_hosted *kw_hosted_find(kw_loop *loop, const kw_server *server) {
  for (kw_link *link = loop->hosted.next; link != &loop->hosted; link = link->next) {
    kw_hosted *hosted = KW_CONTAINER_OF(link, kw_hosted, link);
    if (hosted->server == server) return hosted;
  }
  return NULL;
}

bool kw_hosted_is_idle(const kw_hosted *hosted) {
  return kw_link_is_alone(&hosted->listeners) && kw_link_is_alone(&hosted->connections);
}
