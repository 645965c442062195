/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "http/body.h"

#include "http/text.h"

#define CHUNK_LINE 24 /* bytes around those of a chunk, at most */

/* What comes next in a chunk. */
enum { LENGTH, EXTENSION, LENGTH_FEED, BYTES, BYTES_RETURN, BYTES_FEED };

static kw_body_event take_piece(kw_body *body, kw_slice *input, kw_slice *piece) {
  size_t len = input->len;
  if (body->kind != KW_BODY_UNTIL_CLOSE && len > body->left) len = (size_t)body->left;
  *piece = kw_slice_of(input->data, len);
  *input = kw_slice_of(input->data + len, input->len - len);
  if (body->kind != KW_BODY_UNTIL_CLOSE) body->left -= len;
  return KW_BODY_PIECE;
}

static bool take_digit(kw_body *body, uint8_t c) {
  int digit = kw_text_hex(c);
  if (digit >= 0) {
    body->left = body->left * 16 + (unsigned)digit;
    return ++body->n_digits <= KW_BODY_DIGITS;
  }
  body->step = c == '\r' ? LENGTH_FEED : EXTENSION;
  return body->n_digits > 0 && (c == '\r' || c == ';');
}

static bool take_extension(kw_body *body, uint8_t c) {
  if (c == '\r') body->step = LENGTH_FEED;
  return c == '\r' ||
         (++body->extensions <= KW_BODY_EXTENSIONS && kw_text_is_value(kw_slice_of(&c, 1)));
}

static bool expect(kw_body *body, uint8_t c, uint8_t expected, uint8_t step) {
  body->step = step;
  return c == expected;
}

/* Takes a byte that is not one of the body. Returns false if it is not allowed. */
static bool take_byte(kw_body *body, uint8_t c) {
  switch (body->step) {
    case LENGTH: return take_digit(body, c);
    case EXTENSION: return take_extension(body, c);
    case LENGTH_FEED: return expect(body, c, '\n', BYTES);
    case BYTES_RETURN: return expect(body, c, '\r', BYTES_FEED);
    default: body->n_digits = 0; return expect(body, c, '\n', LENGTH);
  }
}

static kw_body_event next_of_chunk(kw_body *body, kw_slice *input, kw_slice *piece) {
  for (;;) {
    if (body->step == BYTES && body->left == 0) return KW_BODY_TRAILERS;
    if (input->len == 0) return KW_BODY_MORE;
    if (body->step == BYTES) {
      take_piece(body, input, piece);
      if (body->left == 0) body->step = BYTES_RETURN;
      return KW_BODY_PIECE;
    }
    if (!take_byte(body, input->data[0])) return KW_BODY_BAD;
    *input = kw_slice_of(input->data + 1, input->len - 1);
  }
}

kw_body_event kw_body_next(kw_body *body, kw_slice *input, kw_slice *piece) {
  if (body->kind == KW_BODY_CHUNKED) return next_of_chunk(body, input, piece);
  if (body->kind == KW_BODY_LENGTH && body->left == 0) return KW_BODY_END;
  return input->len == 0 ? KW_BODY_MORE : take_piece(body, input, piece);
}

/* A short chunk is one copy. */
static bool add_copy(kw_chain *chain, const char *line, size_t n, kw_slice bytes) {
  uint8_t *to = kw_chain_reserve(chain, n + bytes.len + 2);
  if (to == NULL) return false;
  memcpy(to, line, n);
  memcpy(to + n, bytes.data, bytes.len);
  memcpy(to + n + bytes.len, "\r\n", 2);
  kw_chain_commit(chain, n + bytes.len + 2);
  return true;
}

bool kw_body_add_chunk(kw_chain *chain, kw_blob *blob, kw_slice bytes) {
  char line[CHUNK_LINE];
  size_t n = (size_t)snprintf(line, sizeof line, "%zx\r\n", bytes.len);
  if (blob == NULL || bytes.len < KW_CHAIN_COPIED) return add_copy(chain, line, n, bytes);
  return kw_chain_add(chain, kw_slice_of(line, n)) && kw_chain_add_own_blob(chain, blob, bytes) &&
         kw_chain_add(chain, kw_slice_of("\r\n", 2));
}
