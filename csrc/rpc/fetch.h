/* SPDX-License-Identifier: MIT
 *
 * fetch: the HTTP requests of a client, over one connection. A fetch is one request and its answer, see
 * http/exchange.h.
 *
 *   sending      kw_fetch_begin -> kw_fetch_write* -> kw_fetch_end
 *   receiving    kw_fetch_take returns HEAD -> BODY* -> END -> CLOSED; or CLOSED earlier, if the fetch fails
 *
 * The answer is queued until it is taken. When KW_FETCH_BYTES of the body are queued, the exchange is paused. A fetch
 * becomes ready when something can be taken, or when there is room to write again. It is freed once its CLOSED was
 * taken, or when it is dropped. Interim answers are ignored.
 *
 * A fetch is identified by a number, which is never used again. Functions that take a number do nothing for a fetch
 * that is gone.
 */
#ifndef KW_RPC_FETCH_H
#define KW_RPC_FETCH_H

#include "base/link.h"
#include "base/map.h"
#include "h2/session.h"
#include "http/connection.h"

#define KW_FETCH_BYTES (256 * 1024) /* limit of the queued body; the last part may exceed it */

typedef enum kw_fetched_kind {
  KW_FETCHED_NOTHING, /* nothing has arrived yet, or the fetch is gone */
  KW_FETCHED_HEAD,    /* `status`, and `bytes`: the fields as in kw_call_info */
  KW_FETCHED_BODY,    /* `bytes` of the body */
  KW_FETCHED_END,     /* the answer is complete. `bytes`: the trailers, like fields; or NULL */
  KW_FETCHED_CLOSED /* the fetch has ended. If it has failed, `bytes`: why; NULL: memory is short */
} kw_fetched_kind;

typedef struct kw_fetched {
  kw_fetched_kind kind;
  int status;
  bool has_failed; /* of CLOSED */
  kw_fate fate;    /* of CLOSED */
  kw_blob *bytes;  /* owned by the caller; or NULL */
} kw_fetched;

/* The fetches of one connection. The owner sets `http` or `session` once it is connected; NULL before that. */
typedef struct kw_fetches {
  kw_http *http;       /* of HTTP/1.1 */
  kw_session *session; /* of HTTP/2 */
  kw_http_options options;
  kw_map all; /* kw_fetch by number */
  uint64_t last;
  kw_link ready;
} kw_fetches;

/* The hooks of a connection whose ctx is its kw_fetches. */
extern const kw_exchange_hooks kw_fetch_hooks;

/* Prepares the fetches of a connection that is not open yet. */
void kw_fetches_init(kw_fetches *fetches, const kw_http_options *options);

/* Frees the connection, and all fetches. */
void kw_fetches_drop(kw_fetches *fetches);

/* Begins a request. Returns its number; 0 if the connection accepts no request now, if the head is not valid, or if
 * memory is short. */
uint64_t kw_fetch_begin(kw_fetches *fetches, const kw_http_request *request);

/* Sends a part of the body. Returns false if it cannot be sent: the fetch has ended, or is about to. Sets *has_room to
 * true if another part may follow at once; otherwise the fetch becomes ready when there is room, or at its end. */
bool kw_fetch_write(kw_fetches *fetches, uint64_t number, kw_slice bytes, bool *has_room);

/* Returns a number that grows when bytes of a fetch move over HTTP/2. */
uint64_t kw_fetch_moved(const kw_fetches *fetches, uint64_t number);

/* Ends the request. Returns false as kw_fetch_write does. */
bool kw_fetch_end(kw_fetches *fetches, uint64_t number);

/* Takes the next part of the answer, in order. */
kw_fetched kw_fetch_take(kw_fetches *fetches, uint64_t number);

/* Abandons a fetch and frees it. Its connection ends, unless the fetch had ended. */
void kw_fetch_drop(kw_fetches *fetches, uint64_t number);

/* True if another request may begin. */
bool kw_fetches_take_more(const kw_fetches *fetches);

/* Removes the oldest fetch from the list of ready ones. Returns its number, or 0 if none is ready. */
uint64_t kw_fetch_next_ready(kw_fetches *fetches);

#endif
