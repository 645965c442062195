/* SPDX-License-Identifier: MIT */
#include <uv.h>

#include "uv/loop_server.h"

#include "base/mem.h"
#include "uv/connection.h"
#include "uv/listener.h"

int kw_loop_server_open(kw_loop_server **owner, kw_loop *loop, const kw_engine *engine,
                        kw_server *server) {
  kw_loop_server *loop_server = kw_alloc(sizeof *loop_server);
  if (loop_server == NULL) return UV_ENOMEM;
  *loop_server = (kw_loop_server){.loop = loop, .engine = engine, .server = server, .owner = owner};
  kw_link_init(&loop_server->listeners);
  kw_link_init(&loop_server->connections);
  kw_link_add(&loop->servers, &loop_server->link);
  kw_bell bell = kw_waker_bell(loop->bell);
  engine->set_bell(server, &bell);
  *owner = loop_server;
  return 0;
}

void kw_loop_server_close(kw_loop_server *loop_server, const char *why) {
  while (!kw_link_is_alone(&loop_server->listeners)) {
    kw_listener_close(KW_CONTAINER_OF(loop_server->listeners.next, kw_listener, link));
  }
  while (!kw_link_is_alone(&loop_server->connections)) {
    kw_connection_close(KW_CONTAINER_OF(loop_server->connections.next, kw_connection, link), why);
  }
  kw_link_remove(&loop_server->link);
  *loop_server->owner = NULL;
  kw_free(loop_server);
}

kw_loop_server *kw_loop_server_find(kw_loop *loop, const kw_server *server) {
  for (kw_link *link = loop->servers.next; link != &loop->servers; link = link->next) {
    kw_loop_server *loop_server = KW_CONTAINER_OF(link, kw_loop_server, link);
    if (loop_server->server == server) return loop_server;
  }
  return NULL;
}

bool kw_loop_server_is_idle(const kw_loop_server *loop_server) {
  return kw_link_is_alone(&loop_server->listeners) && kw_link_is_alone(&loop_server->connections);
}
