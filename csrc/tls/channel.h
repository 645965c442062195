/* SPDX-License-Identifier: MIT
 *
 * channel: one connection's TLS, bytes in and bytes out. See face/tls.h for the contract, of which these are the
 * functions.
 *
 *   handshake   `feed` queues, `step` works. The first bytes are looked at: HTTP in the place of TLS is recognised
 *   open        `read` and `write` work
 *   done        the channel has failed, or was finished. An alert may be pending
 *
 * What waits in a channel is bounded: KW_TLS_INPUT bytes of ciphertext that came, KW_TLS_OUTPUT and one record of
 * ciphertext that is pending, and OpenSSL's buffers of one record in each direction, which are freed while they are
 * empty. While KW_TLS_OUTPUT is pending nothing is read, since reading may make answers (key updates).
 */
#ifndef KW_TLS_CHANNEL_H
#define KW_TLS_CHANNEL_H

#include "tls/context.h"

typedef struct kw_tls_info {
  const char *version; /* "TLSv1.3" */
  const char *suite;   /* "TLS_AES_128_GCM_SHA256" */
  const char *name;    /* that a client has asked for (SNI); or NULL */
  bool is_resumed;
} kw_tls_info;

kw_tls_channel *kw_tls_channel_accept(kw_tls_context *context, kw_tls_failure *failure);
kw_tls_channel *kw_tls_channel_connect(kw_tls_context *context, const char *host, const char *place,
                                       kw_tls_failure *failure);
void kw_tls_channel_close(kw_tls_channel *channel);

size_t kw_tls_channel_feed(kw_tls_channel *channel, const void *bytes, size_t len);
void kw_tls_channel_step(kw_tls_channel *channel);
size_t kw_tls_channel_read(kw_tls_channel *channel, void *to, size_t cap);
size_t kw_tls_channel_read_from(kw_tls_channel *channel, kw_tls_input *input, void *to, size_t cap);
size_t kw_tls_channel_write(kw_tls_channel *channel, const void *bytes, size_t len);
void kw_tls_channel_finish(kw_tls_channel *channel);
size_t kw_tls_channel_pending(const kw_tls_channel *channel, struct iovec *pieces, size_t max);
void kw_tls_channel_wrote(kw_tls_channel *channel, size_t bytes);
unsigned kw_tls_channel_state(const kw_tls_channel *channel);
const kw_tls_failure *kw_tls_channel_failure(const kw_tls_channel *channel);
const char *kw_tls_channel_common_name(const kw_tls_channel *channel);

/* Fails the channel: plaintext or ciphertext that it gave was lost for lack of memory. */
void kw_tls_channel_lose(kw_tls_channel *channel);

/* Returns what was agreed on, of an open channel. The texts live as long as the channel. */
kw_tls_info kw_tls_channel_info(const kw_tls_channel *channel);

#endif
