/* SPDX-License-Identifier: MIT
 *
 * client: one connection to a server, with its gRPC calls; or an HTTP/1.1 connection with its fetches, see rpc/fetch.h,
 * for which the functions for calls and watches are not used.
 *
 *   NEW -> DIALING -> OPEN -> CLOSED        a driver moves the bytes, as in face/engine.h; or Lua does, without dialing
 *
 * Messages of a call wait in its queue until they are taken. A call is ready when something can be taken: a unary call
 * when it has ended, with its only message; any other call when a message or its end has arrived since it was last
 * found empty. The queue is bounded: beyond max_untaken bytes flow control pauses the stream of the call, but no other
 * stream.
 *
 * A call is identified by a number, which is never used again. Functions that take a number do nothing for a call that
 * has ended, unless they say otherwise; those that return a bool for success then return true.
 *
 * The owner calls kw_client_next_ready, then kw_client_take until it returns NOTHING or END. A call that has ended is
 * freed when its END was taken, or when it is cancelled.
 */
#ifndef KW_RPC_CLIENT_H
#define KW_RPC_CLIENT_H

#include "face/engine.h"
#include "h2/session.h"
#include "rpc/fetch.h"

typedef enum kw_return_kind { KW_RETURN_NOTHING, KW_RETURN_MESSAGE, KW_RETURN_END } kw_return_kind;

/* What kw_client_take returns. */
typedef struct kw_return {
  kw_return_kind kind;
  int status;      /* of an END */
  bool is_refused; /* of an END: the server has not processed the call, and never will */
  kw_blob *bytes;  /* the message, or the text of the status, or NULL; owned by the caller */
} kw_return;

/* Hooks of a call whose messages are not queued, but passed to a hook as they arrive. The END is queued as for any
 * call. */
typedef struct kw_call_hooks {
  void (*on_message)(void *ctx, kw_slice message); /* the slice is valid only inside of the hook */
  void (*on_end)(void *ctx); /* called once, and last; also if the call was cancelled */
  void *ctx;
} kw_call_hooks;

/* Makes a client that is not connected. The options are copied, and is_client is set in the copy. The authority, the
 * server's name in requests, is copied. max_untaken is the limit in bytes of each call's queue. hash_seed is for hash
 * tables whose keys the server chooses, see base/hash.h. Returns NULL if memory is short. */
kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         uint64_t hash_seed, int64_t now);

/* How an HTTP client connects. */
typedef struct kw_http_kind {
  bool is_tls;
  bool has_h2; /* HTTP/2 without TLS; with TLS both sides agree on it */
} kw_http_kind;

/* Makes an HTTP client that is not connected. The options are copied, and is_client is set in the copy. It may take
 * connect_ms milliseconds to connect; 0: unlimited. Returns NULL if memory is short. */
kw_client *kw_client_new_http(const kw_http_options *options, int64_t connect_ms, kw_http_kind kind,
                              int64_t now);

/* Returns the fetches of an HTTP client; NULL for a gRPC client. */
kw_fetches *kw_client_fetches(kw_client *client);

/* Processes the effects of functions of rpc/fetch.h. Must be called after them. */
void kw_client_touch(kw_client *client);

/* Ends every call, and frees the client. Calls no hook of the driver. */
void kw_client_free(kw_client *client);

/* Ends the connection gracefully: queues a GOAWAY for the server, and ends every call. The client stays until
 * kw_client_free: the driver writes the pending bytes and closes, and messages that calls have received can still be
 * taken. Does nothing if the connection is closed. */
void kw_client_end(kw_client *client);

#define KW_CLIENT_WHY                                                                              \
  768 /* the same as KW_TLS_TEXT, so that a text about a certificate is not cut */

/* Returns why the connection has ended or is about to, in fewer bytes than KW_CLIENT_WHY; NULL if no reason is known.
 * The text belongs to the client. */
const char *kw_client_why(const kw_client *client);

/* The state of a connection, for Lua. */
typedef struct kw_client_health {
  bool is_ready; /* the server has sent its settings, and takes calls; of HTTP: it is connected */
  bool is_over;  /* the connection is closed, or about to be */
  bool got_enhance_your_calm; /* see kw_session_got_enhance_your_calm */
  uint64_t
      data_bytes; /* received bytes of DATA frames: complete and incomplete messages; of HTTP: all */
} kw_client_health;

/* Returns the health of a client, which then is no longer news for kw_client_has_news. */
kw_client_health kw_client_read_health(kw_client *client);

/* Returns how many bytes wait to be written. */
size_t kw_client_unsent(const kw_client *client);

/* Returns the last time that the driver has passed, in milliseconds. */
int64_t kw_client_now(const kw_client *client);

/* Returns the client's hash_seed. */
uint64_t kw_client_hash_seed(const kw_client *client);

/* {====== Calls ====== */

/* Begins a call with `n` fields of metadata. Returns its number; 0 if memory is short, or the connection takes no
 * more calls. The hooks, which may be NULL, are copied. Path and metadata are copied too; metadata beyond
 * KW_MAX_METADATA fields is left out. */
uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_http_field *metadata, size_t n,
                        bool is_unary, const kw_call_hooks *hooks);

/* True if a call has not ended. */
bool kw_client_is_live(const kw_client *client, uint64_t call);

/* Sends a message. Returns false if memory is short: nothing was sent. */
bool kw_client_send(kw_client *client, uint64_t call, kw_slice message);

/* Half-closes the call: no more messages are sent. */
void kw_client_half_close(kw_client *client, uint64_t call);

/* True if at most `max` bytes of the call's messages wait to be framed, or if the call has ended. If more wait,
 * returns false, and the call becomes ready when the session asks for more: the caller then asks again. */
bool kw_client_has_room(kw_client *client, uint64_t call, size_t max);

/* Resets a call, unless it has ended, and frees it: nothing can be taken from it afterwards. */
void kw_client_cancel(kw_client *client, uint64_t call);

/* Resets a call, and drops what was not taken. The call ends with a status of our own, which can be taken. */
void kw_client_fail(kw_client *client, uint64_t call, int status, const char *text);

/* Pauses a call's stream by flow control. For a call with hooks; any other is paused by its queue. */
void kw_client_pause(kw_client *client, uint64_t call);

/* Resumes a paused stream. Messages that waited are passed to the hooks before this function returns. */
void kw_client_resume(kw_client *client, uint64_t call);

/* Returns the hooks of a call, all NULL if it has none; or NULL if it has ended. Valid until the call ends. */
const kw_call_hooks *kw_client_hooks(const kw_client *client, uint64_t call);

/* Takes the next message of a call, or its END, also after it has ended. After the END the call is freed. */
kw_return kw_client_take(kw_client *client, uint64_t call);

/* Takes the oldest call out of the list of ready calls. Returns its number, or 0 if no call is ready. */
uint64_t kw_client_next_ready(kw_client *client);

/* True if the connection takes calls, as the owner has read with kw_client_read_health, and no call is ready. Watches
 * may be ready. */
bool kw_client_is_quiet(const kw_client *client);

/* Returns the list of ready watches of this connection: kw_subscription by its field `ready`, oldest first. The owner
 * removes them. */
kw_link *kw_client_ready_watches(kw_client *client);

/* }====== */

/* {====== For the driver ======
 *
 * The functions of kw_peer_face and kw_engine for clients, see face/engine.h.
 */

extern const kw_peer_face kw_dialed_face;

void kw_client_dial(kw_client *client, const kw_peer_hooks *hooks, int64_t now);
void kw_client_opened(kw_client *client, bool has_h2, int64_t now);
bool kw_client_has_news(const kw_client *client);
int64_t kw_client_deadline(const kw_client *client);

/* }====== */

#endif
