/* SPDX-License-Identifier: MIT
 *
 * connection: one HTTP/1.1 connection, for servers and for clients (RFC 9110, RFC 9112).
 *
 * A connection does no I/O and reads no clock. The owner passes received bytes to kw_http_feed. Bytes to be sent are in
 * the chain kw_http_out. Times are milliseconds: the owner passes `now`, and calls kw_http_step at the time that
 * kw_http_deadline returns.
 *
 * The connection carries one exchange at a time, see exchange.h. A server reads the next request once the answer is
 * complete; until then bytes of later requests wait, up to KW_HTTP_AHEAD, and then the connection wants no bytes. A
 * client begins the next request once the answer has arrived.
 *
 * Every resource that a peer can consume has a limit. A server refuses a request with the status below, and closes; a
 * client's exchange fails, and on_close gets the reason:
 *   line of a request      max_line bytes: 414
 *   head, or trailers      max_head bytes, KW_HEAD_FIELDS fields: 431
 *   body                   max_body bytes, or as the owner sets it in the exchange: 413
 *   extensions of chunks   KW_BODY_EXTENSIONS bytes in one body: 400
 *   time                   head_ms for a head and body_ms between bytes of a body: 408; first_byte_ms, idle_ms: closed
 *   output                 max_out bytes: the owner waits for on_room, a server reads no more
 *   waiting output         stall_ms without progress of the output: closed
 *   half-closed client     gone_ms in which the owner neither reads nor writes: 503, or closed. The client may be gone:
 *                          a closed socket and one that is shut down look alike until something is sent.
 *   requests               max_requests: closed after the last one
 *   interim answers        KW_HTTP_INTERIM for one request of a client: the exchange fails
 *   memory                 the budget that all connections share: closed
 *
 * A request that is not well-formed is refused with 400, or 417, 501, 505; see head.h. A client that may still be
 * sending then gets linger_ms to read the answer; its bytes are dropped, up to KW_HTTP_LINGER.
 *
 * A server ignores one empty line before a request. It never sends 411: a request without a length has no body. If the
 * client waits for status 100, the server sends it after on_request, unless the hook has paused or answered, or a part
 * of the body has arrived. If an answer ends before its request, the rest of the body is dropped, up to KW_HTTP_DROPPED
 * bytes.
 *
 * An idle connection has no buffers.
 */
#ifndef KW_HTTP_CONNECTION_H
#define KW_HTTP_CONNECTION_H

#include "base/chain.h"
#include "http/exchange.h"

#define KW_HTTP_AHEAD 4096         /* bytes of later requests that are read during an exchange */
#define KW_HTTP_DROPPED (64 << 10) /* bytes of a body that are read after the answer, and dropped */
#define KW_HTTP_LINGER (256 << 10) /* bytes that are read after a refusal, and dropped */
#define KW_HTTP_INTERIM 16         /* interim answers to one request */

typedef struct kw_http kw_http;

/* Limits, see above. A time of 0 is unlimited, except linger_ms: 0 closes at once. */
typedef struct kw_http_options {
  bool is_client;
  bool is_tls; /* of a server: the scheme of requests is https */

  size_t max_line;
  size_t max_head;
  uint64_t max_body;
  size_t max_out;
  uint32_t max_requests;

  int64_t first_byte_ms; /* of a server: from the start of the connection to the first byte */
  int64_t head_ms;       /* from the first byte of a head to its last one */
  int64_t body_ms;       /* between bytes of a body */
  int64_t idle_ms;       /* between two exchanges; of a client, also before the first */
  int64_t stall_ms;      /* between bytes of the output that the socket takes */
  int64_t linger_ms;     /* in which a client can read a refusal */
  int64_t gone_ms;       /* of a server: see half-closed clients above */
  kw_budget *budget;     /* of all connections together; or NULL */
} kw_http_options;

/* Returns the default options of a server. */
kw_http_options kw_http_defaults(void);

/* Makes a connection. Options and hooks are not copied, and must outlive it. NULL if memory is short. */
kw_http *kw_http_new(const kw_http_options *options, const kw_exchange_hooks *hooks, void *ctx,
                     int64_t now);

/* Frees the connection. Calls on_close first if there is an exchange. */
void kw_http_free(kw_http *http);

/* {====== Bytes and time ====== */

/* Takes bytes from the peer, and copies those that it keeps. No bytes: the peer has closed its side. May call hooks. */
void kw_http_feed(kw_http *http, kw_slice bytes, int64_t now);

/* Notes that the end of the peer's bytes, which the next kw_http_feed reports, may be too early: an answer whose length
 * is not known is then incomplete. */
void kw_http_note_cut(kw_http *http);

/* Server: notes that the client has closed its side, while the connection wants no bytes: the last bytes, and then no
 * bytes, are still to be fed. */
void kw_http_note_gone(kw_http *http, int64_t now);

/* Processes queued input and the effects of functions of exchanges. Must be called after the owner has used an exchange
 * outside of a hook, and before the output is written. May call hooks. Cheap if there is nothing to do. */
void kw_http_flush(kw_http *http, int64_t now);

/* Returns the output. The owner removes what the socket has taken and then calls kw_http_wrote. */
kw_chain *kw_http_out(kw_http *http);

/* Notes that some of the output was written. Calls on_room if there is room again, and does what kw_http_flush does. */
void kw_http_wrote(kw_http *http, int64_t now);

/* True if the connection wants to be fed. */
bool kw_http_wants_bytes(const kw_http *http);

/* Returns when kw_http_step is due; INT64_MAX: never. */
int64_t kw_http_deadline(const kw_http *http);

/* Does what is due: timeouts, the next turn, the end of a drain. May call hooks. */
void kw_http_step(kw_http *http, int64_t now);

/* }====== */

/* Client: begins an exchange, and sets its owner. request->length is the length of the body: 0 if there is none, -1 if
 * it is not known yet. The scheme is not used. The head is copied. Returns NULL, with nothing sent, if the connection
 * has an exchange, drains or has ended, if the server has closed its side, if a part of the head is not valid, or if
 * memory is short. */
kw_exchange *kw_http_request_begin(kw_http *http, const kw_http_request *request, void *owner);

/* Ends the connection once its exchange is complete, at the latest after `ms` milliseconds; at once if it is idle. */
void kw_http_drain(kw_http *http, int64_t ms, int64_t now);

/* Ends the connection at once, for the reason `why`, which is copied, and calls on_close for its exchange. The output
 * may still be written. */
void kw_http_end(kw_http *http, const char *why);

/* True if there is no exchange and no part of a message, and the connection has not ended. */
bool kw_http_is_idle(const kw_http *http);

/* True if the connection has ended, and does not wait for a client to read a refusal. The output may still have to be
 * written. */
bool kw_http_is_done(const kw_http *http);

/* Returns why the connection has ended, in words; "" if no reason is known. Valid as long as the connection. */
const char *kw_http_why(const kw_http *http);

/* Returns the account that is charged for the memory of the connection. The owner may charge it too. */
kw_account *kw_http_account(kw_http *http);

#endif
