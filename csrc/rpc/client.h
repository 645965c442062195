/* SPDX-License-Identifier: MIT
 *
 * client: a connection to a server, and the calls that are under way on it. What comes back is gathered in the order in
 * which it came, to be taken one by one.
 *
 * What nobody takes is bounded: beyond max_untaken bytes no more is read.
 */
#ifndef KW_RPC_CLIENT_H
#define KW_RPC_CLIENT_H

#include "h2/session.h"

typedef struct kw_client kw_client;

typedef enum kw_return_kind { KW_RETURN_MESSAGE, KW_RETURN_END } kw_return_kind;

typedef struct kw_return {
  kw_return_kind kind;
  uint64_t call;
  int status; /* of an END */
  kw_blob *
      bytes; /* the message, or the text of the status, or NULL; who takes it takes the reference */
} kw_return;

/* NULL if memory is short. The authority is the server's name. */
kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         int64_t now);
void kw_client_free(kw_client *client);

/* Begins a call; 0 if memory is short, or the connection takes no more. */
uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_field_line *lines, size_t n);

/* These do nothing for a call that has ended. False if memory is short: the call has then been cancelled. */
bool kw_client_send(kw_client *client, uint64_t call, kw_slice message);
void kw_client_half_close(kw_client *client, uint64_t call);

/* The server is told. No return of the call follows. */
void kw_client_cancel(kw_client *client, uint64_t call);

/* The oldest return that was not taken yet; false if there is none. */
bool kw_client_take(kw_client *client, kw_return *what);

/* As of a peer, see face/engine.h. */
void kw_client_feed(kw_client *client, kw_slice bytes, int64_t now);
size_t kw_client_pending(kw_client *client, struct iovec *pieces, size_t max);
void kw_client_wrote(kw_client *client, size_t bytes);
bool kw_client_wants_bytes(const kw_client *client);
bool kw_client_is_done(const kw_client *client);
int64_t kw_client_deadline(const kw_client *client);
void kw_client_step(kw_client *client, int64_t now);

#endif
