/* SPDX-License-Identifier: MIT
 *
 * json: reads any bytes as JSON. A text that is JSON is written again from its tokens; reading that gives the same
 * tokens, and writing those the same text.
 *
 *   room    one byte: the room that the writer has before it needs the chain
 *   indent  one byte: blanks for each level, from 0 to 3; from 128 on the text may be nested 4 deep only
 *   bytes   the rest
 */
#include "bytes.h"
#include "base/decimal.h"
#include "codec/json.h"
#include "model/error.h"
#include "reach.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ACCEPTED, REFUSED, TOO_DEEP, ESCAPES, FLOATS, BIGS, SPILLED, NOT_UTF8 };

static reach reached[] = {{"texts", 0},
                          {"refused texts", 0},
                          {"texts nested too deep", 0},
                          {"escapes", 0},
                          {"floats", 0},
                          {"big integers", 0},
                          {"texts in a chain", 0},
                          {"strings that are not UTF-8", 0},
                          {NULL, 0}};

typedef struct options {
  size_t room;
  int indent;
  int depth;
} options;

static kw_slice unescape(const kw_json_token *token, bytes *to) {
  if (!token->has_escapes) return token->text;
  reached[ESCAPES].n++;
  to->len = 0;
  size_t len = kw_json_unescape(token, bytes_grow(to, token->text.len));
  must(len <= token->text.len, "a string does not grow");
  return kw_slice_of(to->data, len);
}

static bool write_float(kw_json_writer *w, kw_slice text) {
  double x;
  reached[FLOATS].n++;
  return kw_decimal_read(text, &x) ? kw_json_put_double(w, x) : kw_json_put_raw(w, text);
}

static bool write_token(kw_json_writer *w, kw_json_kind kind, const kw_json_token *token,
                        bytes *room) {
  switch (kind) {
    case KW_JSON_OBJECT:
    case KW_JSON_ARRAY: return kw_json_begin(w, kind == KW_JSON_OBJECT);
    case KW_JSON_OBJECT_END:
    case KW_JSON_ARRAY_END: return kw_json_end(w, kind == KW_JSON_OBJECT_END);
    case KW_JSON_NAME: return kw_json_put_name(w, unescape(token, room));
    case KW_JSON_STRING: return kw_json_put_string(w, unescape(token, room));
    case KW_JSON_INTEGER: return kw_json_put_integer(w, token->integer);
    case KW_JSON_BIG: reached[BIGS].n++; return kw_json_put_raw(w, token->text);
    case KW_JSON_FLOAT: return write_float(w, token->text);
    case KW_JSON_TRUE: return kw_json_put_raw(w, kw_slice_text("true"));
    case KW_JSON_FALSE: return kw_json_put_raw(w, kw_slice_text("false"));
    case KW_JSON_NULL: return kw_json_put_raw(w, kw_slice_text("null"));
    default: return true;
  }
}

static void check_place(const kw_json_reader *r, kw_json_kind kind, const kw_json_token *token) {
  bool has_text = kind == KW_JSON_NAME || kind == KW_JSON_STRING || kind == KW_JSON_BIG ||
                  kind == KW_JSON_FLOAT;
  must(r->at >= r->start && r->at <= r->end, "the reader is in its text");
  must(r->depth >= 0 && r->depth <= r->max_depth, "the depth is within the limit");
  if (has_text) {
    must(token->text.data >= r->start && token->text.data + token->text.len <= r->end,
         "a token is in its text");
  }
  if (kind == KW_JSON_FAILED) must(r->fault != NULL && r->error != KW_OK, "a failure has a reason");
}

/* Takes the text out of a chain. */
static void take(kw_chain *chain, bytes *to) {
  struct iovec part;
  while (kw_chain_peek(chain, &part, 1) == 1) {
    bytes_add(to, kw_slice_of(part.iov_base, part.iov_len));
    kw_chain_skip(chain, part.iov_len);
  }
}

/* Reads a text, and writes it again, at most `max` bytes. Returns the last kind of token, and the writer's error. */
static kw_json_kind copy(kw_slice text, const options *how, size_t max, bytes *to, int *error) {
  uint8_t *exact = bytes_exact(text), *room = malloc(how->room + 1);
  if (room == NULL) abort();
  kw_json_reader r;
  kw_json_writer w;
  kw_chain chain = {0};
  kw_json_token token;
  kw_json_kind kind;
  bytes plain = {0};
  bool ok = true;
  kw_json_read(&r, kw_slice_of(exact, text.len), how->depth);
  kw_json_write(&w, &chain, room, how->room, max);
  w.indent = how->indent;
  do {
    kind = kw_json_next(&r, &token);
    check_place(&r, kind, &token);
    ok = ok && write_token(&w, kind, &token, &plain);
    must(ok == (w.error == KW_OK), "a failure of the writer has a reason");
  } while (kind != KW_JSON_END && kind != KW_JSON_FAILED);
  if (w.is_in_chain) reached[SPILLED].n++;
  if (r.error == KW_ERR_RESOURCE_EXHAUSTED) reached[TOO_DEEP].n++;
  *error = w.error;
  if (ok) must(kw_json_finish(&w), "a text is finished");
  if (ok) take(&chain, to);
  kw_chain_drop(&chain);
  bytes_drop(&plain);
  free(room);
  free(exact);
  return kind;
}

/* Checks that a text that was written has the limit that it needs, and no other. */
static void check_limit(kw_slice text, const options *how, kw_slice written) {
  int error;
  bytes to = {0};
  copy(text, how, written.len, &to, &error);
  must(error == KW_OK && kw_slice_equal(bytes_slice(&to), written),
       "a text may be as long as the limit");
  bytes_drop(&to);
  copy(text, how, written.len - 1, &to, &error);
  must(error == KW_ERR_RESOURCE_EXHAUSTED, "and no longer");
  bytes_drop(&to);
}

static void check_again(kw_slice text, const options *how, kw_slice written) {
  int error;
  bytes twice = {0};
  options other = *how;
  other.room = how->room * 7 % 256;
  must(copy(written, &other, SIZE_MAX, &twice, &error) == KW_JSON_END, "what was written is JSON");
  must(kw_slice_equal(bytes_slice(&twice), written), "written again it is the same text");
  bytes_drop(&twice);
  check_limit(text, how, written);
}

/* Checks a string of any bytes. */
static void check_string(kw_slice text) {
  kw_chain chain = {0};
  kw_json_writer w;
  kw_json_reader r;
  kw_json_token token;
  bytes written = {0}, plain = {0};
  kw_json_write(&w, &chain, NULL, 0, SIZE_MAX);
  bool ok = kw_json_put_string(&w, text);
  must(ok || w.error == KW_ERR_INVALID_ARGUMENT, "a string is written, or is not UTF-8");
  reached[NOT_UTF8].n += !ok;
  if (ok) must(kw_json_finish(&w), "a string is finished");
  take(&chain, &written);
  kw_chain_drop(&chain);
  kw_json_read(&r, bytes_slice(&written), 1);
  if (ok) must(kw_json_next(&r, &token) == KW_JSON_STRING, "a string that was written is one");
  if (ok) must(kw_slice_equal(unescape(&token, &plain), text), "it is the same string");
  bytes_drop(&plain);
  bytes_drop(&written);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  reach_report(reached);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  options how = {
      .room = data[0], .indent = data[1] % 4, .depth = data[1] < 128 ? KW_JSON_MAX_DEPTH : 4};
  kw_slice text = kw_slice_of(data + 2, size - 2);
  int error;
  bytes written = {0};
  check_string(text);
  if (copy(text, &how, SIZE_MAX, &written, &error) == KW_JSON_END) {
    reached[ACCEPTED].n++;
    must(error == KW_OK, "JSON can be written");
    check_again(text, &how, bytes_slice(&written));
  } else {
    reached[REFUSED].n++;
  }
  bytes_drop(&written);
  return 0;
}
