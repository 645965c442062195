/* SPDX-License-Identifier: MIT
 *
 * grpc: what gRPC puts around messages: frames of a flag, a length and the bytes; a status and its text; a timeout.
 */
#ifndef KW_CODEC_GRPC_H
#define KW_CODEC_GRPC_H

#include "base/big_endian.h"
#include "base/slice.h"

#define KW_GRPC_PREFIX 5 /* bytes before a message */

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

static inline uint8_t *kw_grpc_put_prefix(uint8_t *to, size_t len) {
  *to++ = 0;
  return kw_big_endian_put32(to, (uint32_t)len);
}

/* Splits what comes into messages. A message that lies in one piece of what came is given where it lies; what is torn
 * is gathered. An all-zero splitter with its limit set is ready for use. */
typedef struct kw_grpc_splitter {
  size_t max_len; /* of a message */
  uint8_t prefix[KW_GRPC_PREFIX];
  uint8_t n_prefix; /* how much of it has come */
  uint32_t len;     /* of the message, once its prefix has come */
  uint8_t *bytes;   /* of a torn message: what has come of it */
  size_t n;
  size_t cap;
} kw_grpc_splitter;

typedef enum kw_grpc_split {
  KW_GRPC_MORE,       /* all of the input is used up, and no message is complete */
  KW_GRPC_MESSAGE,    /* *message is the next one, good until the next call */
  KW_GRPC_TOO_LARGE,  /* its length, in splitter->len, is above the limit */
  KW_GRPC_COMPRESSED, /* its flag is set, or is no flag */
  KW_GRPC_NO_MEMORY
} kw_grpc_split;

/* Takes from the front of *input. After a failure the splitter is of no more use. Memory for a torn message grows with
 * what has come of it, and not with the length that was promised. */
kw_grpc_split kw_grpc_next(kw_grpc_splitter *splitter, kw_slice *input, kw_slice *message);

/* Whether nothing of a message has come that is not complete. */
bool kw_grpc_is_between(const kw_grpc_splitter *splitter);

/* How many bytes of the present message are still to come; 0 if not even its length is known. */
size_t kw_grpc_missing(const kw_grpc_splitter *splitter);

void kw_grpc_drop(kw_grpc_splitter *splitter);

/* grpc-message: percent-encodes what may not stand in a header. Returns the length, at most three times that of the
 * text; and back, in place. */
size_t kw_grpc_escape(kw_slice text, uint8_t *to);
size_t kw_grpc_unescape(uint8_t *text, size_t len);

/* grpc-timeout: milliseconds, rounded up; or -1 if it is malformed. */
int64_t kw_grpc_timeout(kw_slice text);

#endif
