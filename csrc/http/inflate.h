/* SPDX-License-Identifier: MIT
 *
 * inflate: decompresses bodies with the content-encoding gzip or deflate, by the system's zlib. The library is loaded
 * when it is first needed, so that keywatch can be built without it.
 */
#ifndef KW_HTTP_INFLATE_H
#define KW_HTTP_INFLATE_H

#include "base/slice.h"

typedef struct kw_inflate kw_inflate;

typedef enum kw_inflated {
  KW_INFLATED,       /* the input is used up, or the output is full */
  KW_INFLATED_ALL,   /* the end of the compressed data; the input may have more bytes */
  KW_INFLATE_BAD,    /* the data is not valid */
  KW_INFLATE_STARVED /* memory is short */
} kw_inflated;

/* True if zlib can be loaded. */
bool kw_inflate_is_available(void);

/* Makes a decompressor. NULL if memory is short, or zlib cannot be loaded. */
kw_inflate *kw_inflate_new(void);

void kw_inflate_free(kw_inflate *inflate);

/* Decompresses bytes of *input, and removes them from it. At most `room` bytes are written to `to`; sets *n to their
 * number. After KW_INFLATED_ALL another compressed part may follow. */
kw_inflated kw_inflate_step(kw_inflate *inflate, kw_slice *input, uint8_t *to, size_t room,
                            size_t *n);

#endif
