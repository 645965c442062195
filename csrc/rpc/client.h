/* SPDX-License-Identifier: MIT
 *
 * client: a connection to a server, and the calls that are under way on it.
 *
 *   NEW -> DIALING -> OPEN -> CLOSED        a driver moves its bytes, as in face/engine.h; or Lua does, without dialing
 *
 * What comes back of a call waits until it is taken. A call is ready once there is something to take: a unary one when
 * it has ended, with its only message; any other one when something came since it was last found empty.
 * What nobody takes is bounded for each call: beyond max_untaken bytes its server is held back by flow control, and no
 * other call is.
 */
#ifndef KW_RPC_CLIENT_H
#define KW_RPC_CLIENT_H

#include "face/engine.h"
#include "h2/session.h"

typedef enum kw_return_kind { KW_RETURN_NOTHING, KW_RETURN_MESSAGE, KW_RETURN_END } kw_return_kind;

typedef struct kw_return {
  kw_return_kind kind;
  int status;      /* of an END */
  bool is_refused; /* the same: the server has not looked at the call, and never will */
  kw_blob *bytes;  /* the message, or the text of the status, or NULL: who takes it owns it */
} kw_return;

/* Who hears the messages of a call at once, in place of those who take them. */
typedef struct kw_call_hooks {
  void (*on_message)(void *ctx, kw_slice message);
  void (*on_end)(void *ctx); /* also if it was cancelled; the last that is heard */
  void *ctx;
} kw_call_hooks;

/* NULL if memory is short. The authority is the server's name. */
kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         int64_t now);
void kw_client_free(kw_client *client);

/* Ends it in order: the server is told, and every call ends. */
void kw_client_end(kw_client *client);

/* Whether the server has answered, and takes calls. */
bool kw_client_is_ready(const kw_client *client);

/* Why it was closed, in fewer bytes than KW_CLIENT_WHY; or NULL. */
#define KW_CLIENT_WHY 128
const char *kw_client_why(const kw_client *client);
bool kw_client_is_closed(const kw_client *client);
bool kw_client_got_enhance_your_calm(const kw_client *client);

/* Begins a call; 0 if memory is short, or the connection takes no more. The hooks may be NULL. */
uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_header_field *lines, size_t n,
                        bool is_unary, const kw_call_hooks *hooks);

/* Whether a call has not ended. */
bool kw_client_is_live(const kw_client *client, uint64_t call);

/* These do nothing for a call that has ended. False if memory is short: nothing was sent. */
bool kw_client_send(kw_client *client, uint64_t call, kw_slice message);
void kw_client_half_close(kw_client *client, uint64_t call);

/* Whether at most so many bytes that were sent have not left. If not, the call is ready when they have. */
bool kw_client_has_room(kw_client *client, uint64_t call, size_t max);

/* The server is told. Nothing of the call is returned any more. */
void kw_client_cancel(kw_client *client, uint64_t call);

/* The same, but it ends with a status of our own, which is returned. */
void kw_client_fail(kw_client *client, uint64_t call, int status, const char *text);

/* Holds a call back by flow control, and lets it go on. */
void kw_client_pause(kw_client *client, uint64_t call);
void kw_client_resume(kw_client *client, uint64_t call);

/* Who hears it, or NULL if it has ended. */
const kw_call_hooks *kw_client_hooks(const kw_client *client, uint64_t call);

/* The next of what came of a call, which is gone after its END. */
kw_return kw_client_take(kw_client *client, uint64_t call);

/* A call that is ready, and is so no longer; 0 if there is none. */
uint64_t kw_client_next_ready(kw_client *client);

/* The watches of this connection that are ready: see rpc/subscription.h. */
kw_link *kw_client_ready_watches(kw_client *client);

/* As in face/engine.h. */
void kw_client_dial(kw_client *client, const kw_peer_hooks *hooks, int64_t now);
void kw_client_opened(kw_client *client, int64_t now);
bool kw_client_has_news(const kw_client *client);
void kw_client_closed(kw_client *client, const char *why);

/* As of a peer, see there. */
void kw_client_feed(kw_client *client, kw_slice bytes, int64_t now);
size_t kw_client_pending(kw_client *client, struct iovec *pieces, size_t max);
void kw_client_wrote(kw_client *client, size_t bytes);
unsigned kw_client_state(const kw_client *client);
int64_t kw_client_deadline(const kw_client *client);
void kw_client_step(kw_client *client, int64_t now);

/* Lua has heard that it is ready, or closed. */
void kw_client_heard(kw_client *client);

#ifdef KW_PROBE
/* What of its session is not as it must be; or NULL. */
const char *kw_client_fault(const kw_client *client);
#endif

#endif
