/* SPDX-License-Identifier: MIT
 *
 * memory: the allocator that nghttp2 gets from a session.
 *
 * Every block is charged to the account of its session. An account above its share gets no more memory: nghttp2 then
 * reports NGHTTP2_ERR_NOMEM, and the session ends.
 */
#include "h2/state.h"

#include "base/mem.h"

/* Precedes every block, and has its size, so that the account can be credited. */
typedef union block_head {
  size_t size;
  max_align_t align;
} block_head;

static void *mem_realloc(void *p, size_t size, void *ctx) {
  kw_session *session = ctx;
  kw_account *account = &session->account;
  block_head *head = p == NULL ? NULL : (block_head *)p - 1;
  size_t before = head == NULL ? 0 : head->size;
  if (size > SIZE_MAX - sizeof *head || kw_account_is_over(account)) return NULL;
  head = kw_realloc(head, sizeof *head + size);
  if (head == NULL) return NULL;
  head->size = sizeof *head + size;
  kw_account_resize(account, before, head->size);
  return head + 1;
}

static void *mem_alloc(size_t size, void *ctx) {
  return mem_realloc(NULL, size, ctx);
}

static void *mem_zeroed(size_t n, size_t size, void *ctx) {
  void *p = size > 0 && n > SIZE_MAX / size ? NULL : mem_alloc(n * size, ctx);
  return p == NULL ? NULL : memset(p, 0, n * size);
}

static void mem_free(void *p, void *ctx) {
  if (p == NULL) return;
  kw_session *session = ctx;
  block_head *head = (block_head *)p - 1;
  kw_account_credit(&session->account, head->size);
  kw_free(head);
}

nghttp2_mem kw_session_memory(kw_session *session) {
  return (nghttp2_mem){session, mem_alloc, mem_free, mem_zeroed, mem_realloc};
}
