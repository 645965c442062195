/* SPDX-License-Identifier: MIT
 *
 * channel: the TLS of one connection, bytes in and bytes out. For the functions without a comment see kw_tls in
 * face/tls.h.
 *
 *   handshake   `feed` queues, `step` works. HTTP instead of TLS is recognized by the first bytes
 *   open        `read` and `write` work
 *   done        the channel has failed, or was finished. An alert may be pending
 *
 * The memory of a channel is bounded:
 *   received ciphertext   KW_TLS_INPUT bytes
 *   pending ciphertext    KW_TLS_OUTPUT bytes and one record from `write`; and 64 KiB from `read`, which may have to
 *                         answer the peer (key updates), and reads no more while these answers are pending
 *   OpenSSL's buffers     one record in each direction; freed while they are empty
 */
#ifndef KW_TLS_CHANNEL_H
#define KW_TLS_CHANNEL_H

#include "tls/context.h"

typedef struct kw_tls_info {
  const char *version; /* "TLSv1.3" */
  const char *suite;   /* "TLS_AES_128_GCM_SHA256" */
  const char *name;    /* server name that the client has sent (SNI); or NULL */
  bool is_resumed;
} kw_tls_info;

kw_tls_channel *kw_tls_channel_accept(kw_tls_context *context, kw_tls_failure *failure);
kw_tls_channel *kw_tls_channel_connect(kw_tls_context *context, const char *host,
                                       const char *cache_key, kw_tls_failure *failure);
void kw_tls_channel_close(kw_tls_channel *channel);

size_t kw_tls_channel_feed(kw_tls_channel *channel, const void *bytes, size_t len);
void kw_tls_channel_step(kw_tls_channel *channel);
size_t kw_tls_channel_read_from(kw_tls_channel *channel, kw_tls_input *input, void *to, size_t cap);
size_t kw_tls_channel_write(kw_tls_channel *channel, const void *bytes, size_t len);
void kw_tls_channel_finish(kw_tls_channel *channel);
size_t kw_tls_channel_pending(const kw_tls_channel *channel, struct iovec *pieces, size_t max);
void kw_tls_channel_wrote(kw_tls_channel *channel, size_t bytes);
unsigned kw_tls_channel_state(const kw_tls_channel *channel);
const kw_tls_failure *kw_tls_channel_failure(const kw_tls_channel *channel);
const char *kw_tls_channel_identity(const kw_tls_channel *channel, size_t *len);
bool kw_tls_channel_has_h2(const kw_tls_channel *channel);

/* Does what kw_tls_channel_read_from does, without *input. */
size_t kw_tls_channel_read(kw_tls_channel *channel, void *to, size_t cap);

/* Fails the channel: the caller has lost plaintext or ciphertext of the channel for lack of memory. */
void kw_tls_channel_lose(kw_tls_channel *channel);

/* Describes an open channel: what the two sides have agreed on. The texts live as long as the channel. */
kw_tls_info kw_tls_channel_info(const kw_tls_channel *channel);

#endif
