/* SPDX-License-Identifier: MIT
 *
 * body: decodes the body of a message, and finds its end (RFC 9112 §6 and §7); writes chunks.
 *
 *   5;name=value CR LF hello CR LF      a chunk: its length in hexadecimal, extensions, its bytes
 *   0 CR LF                             the last chunk, after which trailers follow, see head.h
 *
 * A decoder copies nothing: pieces are parts of the input, which may be split anywhere. The lines of chunks must end
 * with CR LF. Extensions are ignored, up to KW_BODY_EXTENSIONS bytes in one body.
 */
#ifndef KW_HTTP_BODY_H
#define KW_HTTP_BODY_H

#include "base/chain.h"

#define KW_BODY_EXTENSIONS 4096
#define KW_BODY_DIGITS 15 /* maximum number of digits of the length of a chunk */

typedef enum kw_body_kind { KW_BODY_LENGTH, KW_BODY_CHUNKED, KW_BODY_UNTIL_CLOSE } kw_body_kind;

typedef enum kw_body_event {
  KW_BODY_MORE,     /* the input is used up */
  KW_BODY_PIECE,    /* bytes of the body */
  KW_BODY_TRAILERS, /* the last chunk has ended, and trailers follow */
  KW_BODY_END,      /* a body with a length has ended */
  KW_BODY_BAD       /* a chunk is not valid */
} kw_body_event;

/* A decoder. The caller sets `kind`, and `left` for a body with a length; the other fields begin as 0. */
typedef struct kw_body {
  kw_body_kind kind;
  uint8_t step;        /* what comes next in a chunk, see body.c */
  uint8_t n_digits;    /* digits of the chunk's length so far */
  uint16_t extensions; /* bytes of extensions so far */
  uint64_t left;       /* bytes that are missing of the body, or of the chunk */
} kw_body;

/* Returns the next event, and removes its bytes from the input. Sets *piece for KW_BODY_PIECE. */
kw_body_event kw_body_next(kw_body *body, kw_slice *input, kw_slice *piece);

/* Adds `bytes`, at least one, as a chunk to the chain. `blob` is the blob that has the bytes: it is retained, or the
 * bytes are copied if they are few. If it is NULL, they are copied. Returns false if memory is short; the chain may
 * then have a part of the chunk. */
bool kw_body_add_chunk(kw_chain *chain, kw_blob *blob, kw_slice bytes);

#endif
