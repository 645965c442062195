/* SPDX-License-Identifier: MIT */
#define kw_session_memory usual_memory
#include "h2/memory.c"
#undef kw_session_memory

#include "probe/checks.h"

nghttp2_mem kw_session_memory(kw_session *session);

/* The bytes that nghttp2 has allocated for each session of this thread. */
typedef struct counted {
  const kw_session *session;
  size_t bytes;
  struct counted *next;
} counted;

static _Thread_local counted *all;

static counted **find(const kw_session *session) {
  counted **at = &all;
  while (*at != NULL && (*at)->session != session) at = &(*at)->next;
  return at;
}

size_t kw_session_h2_bytes(const kw_session *session) {
  const counted *one = *find(session);
  return one == NULL ? 0 : one->bytes;
}

static void add(const kw_session *session, size_t bytes) {
  counted **at = find(session), *one = *at;
  if (bytes == 0) return;
  if (one == NULL) {
    one = calloc(1, sizeof *one);
    if (one == NULL) abort();
    one->session = session;
    *at = one;
  }
  one->bytes += bytes;
  if (one->bytes > 0) return;
  *at = one->next;
  free(one);
}

static void *counted_realloc(void *p, size_t size, void *ctx) {
  kw_session *session = ctx;
  size_t before = session->account.held;
  p = mem_realloc(p, size, ctx);
  add(session, session->account.held - before);
  return p;
}

static void *counted_alloc(size_t size, void *ctx) {
  return counted_realloc(NULL, size, ctx);
}

static void *counted_zeroed(size_t n, size_t size, void *ctx) {
  kw_session *session = ctx;
  size_t before = session->account.held;
  void *p = mem_zeroed(n, size, ctx);
  add(session, session->account.held - before);
  return p;
}

static void counted_free(void *p, void *ctx) {
  kw_session *session = ctx;
  size_t before = session->account.held;
  mem_free(p, ctx);
  add(session, session->account.held - before);
}

nghttp2_mem kw_session_memory(kw_session *session) {
  return (nghttp2_mem){session, counted_alloc, counted_free, counted_zeroed, counted_realloc};
}
