/* SPDX-License-Identifier: MIT
 *
 * grpc: the parts of gRPC that are not HTTP/2: message frames, status codes, and the texts of the headers
 * grpc-message and grpc-timeout.
 *
 *   frame   compressed flag (1 byte)  length of the message (4 bytes, big-endian)  message
 */
#ifndef KW_CODEC_GRPC_H
#define KW_CODEC_GRPC_H

#include "base/big_endian.h"
#include "base/slice.h"

#define KW_GRPC_PREFIX 5 /* bytes before the message of a frame */

typedef enum kw_grpc_status {
  KW_GRPC_OK = 0,
  KW_GRPC_CANCELLED = 1,
  KW_GRPC_UNKNOWN = 2,
  KW_GRPC_INVALID_ARGUMENT = 3,
  KW_GRPC_DEADLINE_EXCEEDED = 4,
  KW_GRPC_NOT_FOUND = 5,
  KW_GRPC_RESOURCE_EXHAUSTED = 8,
  KW_GRPC_UNIMPLEMENTED = 12,
  KW_GRPC_INTERNAL = 13,
  KW_GRPC_UNAVAILABLE = 14
} kw_grpc_status;

/* Writes KW_GRPC_PREFIX bytes: the prefix of a message of `len` bytes that is not compressed. Returns the end of the
 * written bytes. */
static inline uint8_t *kw_grpc_put_prefix(uint8_t *to, size_t len) {
  *to++ = 0;
  return kw_big_endian_put32(to, (uint32_t)len);
}

/* Splits a stream of bytes into messages. A message that is complete in one input is returned as a slice of the input.
 * A message that arrives in several inputs is copied into the splitter's own buffer. An all-zero splitter with max_len
 * set is ready for use. */
typedef struct kw_grpc_splitter {
  size_t max_len; /* bytes of the largest message that is accepted */
  uint8_t prefix[KW_GRPC_PREFIX];
  uint8_t n_prefix; /* received bytes of the prefix */
  uint32_t len;     /* length of the message, once its prefix was received */
  uint8_t *bytes;   /* buffer: the received bytes of the message */
  size_t n;
  size_t cap;
} kw_grpc_splitter;

typedef enum kw_grpc_split {
  KW_GRPC_MORE,       /* the whole input was taken, and no message is complete */
  KW_GRPC_MESSAGE,    /* *message is the next message */
  KW_GRPC_TOO_LARGE,  /* the length of the message, splitter->len, is above the limit */
  KW_GRPC_COMPRESSED, /* the compressed flag is not 0 */
  KW_GRPC_NO_MEMORY
} kw_grpc_split;

/* Takes bytes from the front of *input, up to the end of a message. A returned message is valid until the next call,
 * and as long as the input is valid. After TOO_LARGE, COMPRESSED and NO_MEMORY the splitter must not be used again,
 * only dropped. The buffer grows with the received bytes, not with the length in the prefix. */
kw_grpc_split kw_grpc_next(kw_grpc_splitter *splitter, kw_slice *input, kw_slice *message);

/* True between messages: no byte of an incomplete message was received. */
bool kw_grpc_is_between(const kw_grpc_splitter *splitter);

/* Frees the buffer of the splitter. */
void kw_grpc_drop(kw_grpc_splitter *splitter);

/* Percent-encodes a text for grpc-message: bytes that are not printable ASCII, and percent signs. Returns the length of
 * the result, at most three times that of the text; `to` must be large enough for that. */
size_t kw_grpc_escape(kw_slice text, uint8_t *to);

/* Decodes a grpc-message in place. Returns its new length. A percent sign without two hexadecimal digits is left as it
 * is. */
size_t kw_grpc_unescape(uint8_t *text, size_t len);

/* Returns a grpc-timeout in milliseconds, rounded up; or -1 if it is malformed. */
int64_t kw_grpc_timeout(kw_slice text);

#endif
