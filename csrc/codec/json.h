/* SPDX-License-Identifier: MIT
 *
 * json: a reader and a writer of JSON (RFC 8259), without a tree of values.
 *
 * The reader returns the tokens of a text, one per call; its state is the struct, so that a caller may stop between any
 * two tokens and continue later. It accepts exactly the texts of the RFC in UTF-8: no comments, no trailing commas, no
 * byte order mark, no half of a surrogate pair. It allocates nothing, and uses no recursion.
 *
 *   {"a":[1,2.5]}    OBJECT NAME(a) ARRAY INTEGER(1) FLOAT(2.5) ARRAY_END OBJECT_END END
 *
 * The writer appends values to a chain, and puts commas and colons between them. Whatever it has written without a
 * failure is JSON, if the caller has opened and closed objects and arrays in pairs.
 */
#ifndef KW_CODEC_JSON_H
#define KW_CODEC_JSON_H

#include "base/chain.h"
#include "base/slice.h"

#define KW_JSON_MAX_DEPTH 1000 /* of objects and arrays in each other */

/* {====== Reading ====== */

typedef enum kw_json_kind {
  KW_JSON_OBJECT,
  KW_JSON_OBJECT_END,
  KW_JSON_ARRAY,
  KW_JSON_ARRAY_END,
  KW_JSON_NAME, /* of a member: the next token begins its value */
  KW_JSON_STRING,
  KW_JSON_INTEGER, /* of 64 bits, with its sign */
  KW_JSON_BIG,     /* an integer that takes more */
  KW_JSON_FLOAT,   /* has a fraction or an exponent, or is -0: see base/decimal.h */
  KW_JSON_TRUE,
  KW_JSON_FALSE,
  KW_JSON_NULL,
  KW_JSON_END,   /* of the text */
  KW_JSON_FAILED /* the text is not JSON, or is nested too deep: see the reader */
} kw_json_kind;

typedef struct kw_json_token {
  kw_slice
      text; /* of names, strings and numbers: their bytes in the text, without quotation marks */
  int64_t integer;  /* of INTEGER */
  bool has_escapes; /* of names and strings: kw_json_unescape is needed */
} kw_json_token;

typedef struct kw_json_reader {
  const uint8_t *start;
  const uint8_t *at; /* next byte; after a failure, the byte that cannot be there */
  const uint8_t *end;
  const char *fault; /* after a failure: what is wrong, a static text */
  int error; /* after a failure: KW_ERR_MALFORMED, or KW_ERR_RESOURCE_EXHAUSTED if nested too deep */
  int depth; /* objects and arrays that are open */
  int max_depth;
  int expects;                              /* private */
  uint8_t is_object[KW_JSON_MAX_DEPTH + 1]; /* by depth */
} kw_json_reader;

/* Begins to read a text, which outlives the reader. `max_depth` is at most KW_JSON_MAX_DEPTH. */
void kw_json_read(kw_json_reader *reader, kw_slice text, int max_depth);

/* Reads the next token. The fields of the token that do not belong to its kind are not set. After END and FAILED the
 * reader must not be used. */
kw_json_kind kw_json_next(kw_json_reader *reader, kw_json_token *token);

/* True if the token belongs to an object. */
static inline bool kw_json_in_object(const kw_json_reader *reader) {
  return reader->is_object[reader->depth];
}

/* Writes what a name or a string means to `to`, which has room for token->text.len bytes. Returns the length. */
size_t kw_json_unescape(const kw_json_token *token, uint8_t *to);

/* Finds the line and the column of a place in a text, both from 1 on. Columns are bytes. O(text). */
void kw_json_locate(kw_slice text, size_t offset, size_t *line, size_t *column);

/* }====== */

/* {====== Writing ====== */

typedef struct kw_json_writer {
  kw_chain *chain; /* borrowed */
  uint8_t *start;  /* of the bytes that the chain does not have yet */
  uint8_t *at;
  uint8_t *end;     /* of the room */
  size_t max;       /* bytes that may be written */
  int error;        /* the first failure, or KW_OK: later calls write nothing */
  bool is_in_chain; /* the room belongs to the chain */
  int place;        /* private: what comes before the next item */
  int indent;       /* blanks for each level; 0, unless the caller sets it: all in one line */
  int depth;
} kw_json_writer;

/* Begins a text of at most `max` bytes. The bytes are written to `room` first, which outlives the writer, and to the
 * chain once the room is full. `room` may be empty. */
void kw_json_write(kw_json_writer *writer, kw_chain *chain, uint8_t *room, size_t room_len,
                   size_t max);

/* Each of these functions writes one token, and returns true. Each returns false after a failure: writer->error is
 * KW_ERR_NO_MEMORY, KW_ERR_RESOURCE_EXHAUSTED if the text would be too long, or KW_ERR_INVALID_ARGUMENT for a value
 * that JSON does not have. */
bool kw_json_begin(kw_json_writer *writer, bool is_object);
bool kw_json_end(kw_json_writer *writer, bool is_object);

/* Fails if the bytes are not UTF-8. */
bool kw_json_put_name(kw_json_writer *writer, kw_slice name);
bool kw_json_put_string(kw_json_writer *writer, kw_slice text);

/* Writes bytes that are a JSON value, unchecked. */
bool kw_json_put_raw(kw_json_writer *writer, kw_slice json);

bool kw_json_put_integer(kw_json_writer *writer, int64_t v);

/* Writes what kw_decimal_write does, which reads as FLOAT. Fails for infinities and NaN. */
bool kw_json_put_double(kw_json_writer *writer, double x);

/* Ends the text: moves all bytes to the chain. Returns false after a failure. A caller may instead read the bytes from
 * `start` to `at`, if the chain is empty and `is_in_chain` is false. */
bool kw_json_finish(kw_json_writer *writer);

/* }====== */

#endif
