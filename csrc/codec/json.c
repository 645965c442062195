/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "codec/json.h"

#include "base/decimal.h"
#include "model/error.h"

/* {====== Text ====== */

#define EACH_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS UINT64_C(0x8080808080808080)

/* Loads 8 bytes, the first in the lowest bits. */
static inline uint64_t load8(const uint8_t *at) {
  uint64_t v;
  memcpy(&v, at, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  v = __builtin_bswap64(v);
#endif
  return v;
}

/* Returns the high bits of bytes that are not plain, which is exact for the first of them: a borrow changes only the
 * bytes after it. */
static inline uint64_t find_special(uint64_t v) {
  uint64_t quote = v ^ EACH_BYTE * '"', backslash = v ^ EACH_BYTE * '\\';
  return ((quote - EACH_BYTE) | (backslash - EACH_BYTE) | (v - EACH_BYTE * 0x20) | v) & HIGH_BITS;
}

/* By byte: 1 if it stands for itself in a string, and is ASCII. */
static const uint8_t is_plain[256] = {
    [0x20 ... 0x21] = 1, [0x23 ... 0x5b] = 1, [0x5d ... 0x7f] = 1};

/* By the byte after a backslash: what the escape means; 0: there is no such escape, or it is \u. */
static const uint8_t meanings[256] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                      ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};

/* By byte: what follows the backslash in the escape of two bytes that means it; 0: there is none. */
static const uint8_t names[256] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                   ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};

/* Skips plain bytes. */
static inline const uint8_t *skip_plain(const uint8_t *at, const uint8_t *end) {
  for (; end - at >= 8; at += 8) {
    uint64_t special = find_special(load8(at));
    if (special != 0) return at + __builtin_ctzll(special) / 8;
  }
  while (at < end && is_plain[*at]) at++;
  return at;
}

static bool is_within(uint8_t byte, uint8_t low, uint8_t high) {
  return byte >= low && byte <= high;
}

/* Returns the length of the character at a byte that is not ASCII; 0 if it is not UTF-8. */
static size_t utf8_length(const uint8_t *at, const uint8_t *end) {
  uint8_t first = at[0], low = 0x80, high = 0xBF;
  size_t len = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (!is_within(first, 0xC2, 0xF4) || (size_t)(end - at) < len) return 0;
  if (first == 0xE0) low = 0xA0;  /* below: overlong */
  if (first == 0xED) high = 0x9F; /* above: surrogates */
  if (first == 0xF0) low = 0x90;  /* below: overlong */
  if (first == 0xF4) high = 0x8F; /* above: beyond U+10FFFF */
  if (!is_within(at[1], low, high)) return 0;
  for (size_t i = 2; i < len; i++) {
    if (!is_within(at[i], 0x80, 0xBF)) return 0;
  }
  return len;
}

/* Skips the bytes of a string that stand for themselves. */
static const uint8_t *skip_text(const uint8_t *at, const uint8_t *end) {
  for (;;) {
    at = skip_plain(at, end);
    size_t len = at < end && *at >= 0x80 ? utf8_length(at, end) : 0;
    if (len == 0) return at;
    at += len;
  }
}

/* By byte: 1 more than the value of a hexadecimal digit; 0: it is none. */
static const uint8_t digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16};

/* Reads 4 hexadecimal digits. Returns the place after the last of them that is there. */
static const uint8_t *read_hex(const uint8_t *at, const uint8_t *end, int32_t *code) {
  const uint8_t *stop = end - at < 4 ? end : at + 4;
  for (*code = 0; at < stop && digits[*at] > 0; at++) *code = *code * 16 + digits[*at] - 1;
  return at;
}

/* Returns the number of an escape with hexadecimal digits; -1 if there is none. */
static int32_t code_of(const uint8_t *at, const uint8_t *end) {
  int32_t code;
  if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
  return read_hex(at + 2, end, &code) == at + 6 ? code : -1;
}

static bool is_high_surrogate(int32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}

static bool is_low_surrogate(int32_t code) {
  return code >= 0xDC00 && code < 0xE000;
}

static uint8_t *put_utf8(uint8_t *to, int32_t code) {
  if (code < 0x80) {
    *to++ = (uint8_t)code;
    return to;
  }
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; /* bytes after the first */
  static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
  *to++ = (uint8_t)(first[more] | code >> 6 * more);
  while (more-- > 0) *to++ = (uint8_t)(0x80 | (code >> 6 * more & 0x3F));
  return to;
}

/* }====== */

/* {====== Tokens ====== */

enum { EXPECTS_VALUE, EXPECTS_FIRST_VALUE, EXPECTS_FIRST_NAME, EXPECTS_NEXT };

void kw_json_read(kw_json_reader *r, kw_slice text, int max_depth) {
  r->start = r->at = text.data;
  r->end = text.len == 0 ? text.data : text.data + text.len;
  r->fault = NULL;
  r->error = KW_OK;
  r->depth = 0;
  r->max_depth = max_depth;
  r->expects = EXPECTS_VALUE;
  r->is_object[0] = false;
}

static kw_json_kind fail(kw_json_reader *r, const uint8_t *at, const char *fault) {
  r->at = at;
  r->fault = at == r->end ? "the text ends too early" : fault;
  r->error = KW_ERR_MALFORMED;
  return KW_JSON_FAILED;
}

static inline void skip_blanks(kw_json_reader *r) {
  const uint8_t *at = r->at;
  while (at < r->end && *at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
    at++;
  r->at = at;
}

static kw_json_kind open(kw_json_reader *r, bool is_object) {
  if (r->depth == r->max_depth) {
    fail(r, r->at, "nested too deep");
    r->error = KW_ERR_RESOURCE_EXHAUSTED;
    return KW_JSON_FAILED;
  }
  r->is_object[++r->depth] = is_object;
  r->expects = is_object ? EXPECTS_FIRST_NAME : EXPECTS_FIRST_VALUE;
  r->at++;
  return is_object ? KW_JSON_OBJECT : KW_JSON_ARRAY;
}

static kw_json_kind close(kw_json_reader *r) {
  bool is_object = r->is_object[r->depth--];
  r->expects = EXPECTS_NEXT;
  r->at++;
  return is_object ? KW_JSON_OBJECT_END : KW_JSON_ARRAY_END;
}

/* Returns the place after an escape that begins at a backslash; NULL after a failure. */
static const uint8_t *skip_escape(kw_json_reader *r, const uint8_t *at) {
  const uint8_t *stop = at + 2;
  int32_t code;
  if (at + 1 < r->end && meanings[at[1]] != 0) return stop;
  if (at + 1 == r->end || at[1] != 'u') {
    fail(r, at + 1, "no such escape");
    return NULL;
  }
  stop = read_hex(stop, r->end, &code);
  if (stop < at + 6) {
    fail(r, stop, "a hexadecimal digit is expected");
    return NULL;
  }
  if (!is_high_surrogate(code) && !is_low_surrogate(code)) return stop;
  if (is_high_surrogate(code) && is_low_surrogate(code_of(stop, r->end))) return stop + 6;
  fail(r, at, "half of a surrogate pair");
  return NULL;
}

/* Reads a string. Returns false after a failure. */
static bool read_string(kw_json_reader *r, kw_json_token *token) {
  const uint8_t *from = r->at + 1, *at = from;
  token->has_escapes = false;
  for (;;) {
    if (at == r->end || *at != '\\') at = skip_text(at, r->end);
    if (at < r->end && *at == '"') break;
    if (at == r->end || *at != '\\') {
      bool is_control = at < r->end && *at < 0x20;
      fail(r, at, is_control ? "a control character in a string must be escaped" : "not UTF-8");
      return false;
    }
    at = skip_escape(r, at);
    if (at == NULL) return false;
    token->has_escapes = true;
  }
  token->text = kw_slice_of(from, (size_t)(at - from));
  r->at = at + 1;
  return true;
}

static kw_json_kind read_name(kw_json_reader *r, kw_json_token *token) {
  if (r->at == r->end || *r->at != '"') {
    return fail(r, r->at, "a name in quotation marks is expected");
  }
  if (!read_string(r, token)) return KW_JSON_FAILED;
  skip_blanks(r);
  if (r->at == r->end || *r->at != ':') return fail(r, r->at, "':' is expected");
  r->at++;
  r->expects = EXPECTS_VALUE;
  return KW_JSON_NAME;
}

static bool is_digit(const kw_json_reader *r, const uint8_t *at) {
  return at < r->end && *at >= '0' && *at <= '9';
}

/* Returns the place after digits; `at` itself if there are none. */
static const uint8_t *skip_digits(const kw_json_reader *r, const uint8_t *at) {
  while (is_digit(r, at)) at++;
  return at;
}

/* Converts an integer. Returns false if it takes more than 64 bits. */
static bool to_integer(kw_slice number, int64_t *v) {
  bool is_negative = number.data[0] == '-';
  uint64_t size = 0, most = (uint64_t)INT64_MAX + is_negative;
  for (size_t i = is_negative; i < number.len; i++) {
    uint8_t digit = (uint8_t)(number.data[i] - '0');
    if (size > (most - digit) / 10) return false;
    size = size * 10 + digit;
  }
  *v = (int64_t)(is_negative ? -size : size);
  return true;
}

static kw_json_kind classify(kw_json_token *token, bool is_float) {
  bool is_minus_zero =
      token->text.len == 2 && token->text.data[0] == '-' && token->text.data[1] == '0';
  if (is_float || is_minus_zero) return KW_JSON_FLOAT;
  return to_integer(token->text, &token->integer) ? KW_JSON_INTEGER : KW_JSON_BIG;
}

static kw_json_kind read_number(kw_json_reader *r, kw_json_token *token) {
  const char *fault = "a digit is expected";
  const uint8_t *at = r->at, *part;
  if (*at == '-') at++;
  if (!is_digit(r, at)) return fail(r, at, fault);
  if (*at == '0' && is_digit(r, at + 1)) return fail(r, at, "a number must not begin with 0");
  at = part = skip_digits(r, at);
  if (at < r->end && *at == '.') {
    at = skip_digits(r, part + 1);
    if (at == part + 1) return fail(r, at, fault);
  }
  if (at < r->end && (*at == 'e' || *at == 'E')) {
    if (++at < r->end && (*at == '+' || *at == '-')) at++;
    if (!is_digit(r, at)) return fail(r, at, fault);
    at = skip_digits(r, at);
  }
  token->text = kw_slice_of(r->at, (size_t)(at - r->at));
  r->at = at;
  r->expects = EXPECTS_NEXT;
  return classify(token, at != part);
}

static kw_json_kind read_word(kw_json_reader *r, const char *word, kw_json_kind kind) {
  const uint8_t *at = r->at;
  for (; *word != 0; word++, at++) {
    if (at == r->end || *at != (uint8_t)*word) return fail(r, at, "no such word");
  }
  r->at = at;
  r->expects = EXPECTS_NEXT;
  return kind;
}

static kw_json_kind read_value(kw_json_reader *r, kw_json_token *token) {
  if (r->at == r->end) return fail(r, r->at, NULL);
  switch (*r->at) {
    case '{': return open(r, true);
    case '[': return open(r, false);
    case '"':
      r->expects = EXPECTS_NEXT;
      return read_string(r, token) ? KW_JSON_STRING : KW_JSON_FAILED;
    case 't': return read_word(r, "true", KW_JSON_TRUE);
    case 'f': return read_word(r, "false", KW_JSON_FALSE);
    case 'n': return read_word(r, "null", KW_JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return read_number(r, token);
    case 0xEF:
      if (r->at == r->start) return fail(r, r->at, "a byte order mark, or not JSON");
  }
  return fail(r, r->at, "a value is expected");
}

/* Reads what comes after a value. */
static kw_json_kind read_next(kw_json_reader *r, kw_json_token *token) {
  bool is_object = kw_json_in_object(r);
  if (r->depth == 0) {
    return r->at == r->end ? KW_JSON_END : fail(r, r->at, "there is text after the value");
  }
  if (r->at == r->end) return fail(r, r->at, NULL);
  if (*r->at == (is_object ? '}' : ']')) return close(r);
  if (*r->at != ',') {
    return fail(r, r->at, is_object ? "',' or '}' is expected" : "',' or ']' is expected");
  }
  r->at++;
  skip_blanks(r);
  return is_object ? read_name(r, token) : read_value(r, token);
}

kw_json_kind kw_json_next(kw_json_reader *r, kw_json_token *token) {
  skip_blanks(r);
  switch (r->expects) {
    case EXPECTS_NEXT: return read_next(r, token);
    case EXPECTS_FIRST_NAME:
      if (r->at < r->end && *r->at == '}') return close(r);
      return read_name(r, token);
    case EXPECTS_FIRST_VALUE:
      if (r->at < r->end && *r->at == ']') return close(r);
      return read_value(r, token);
    default: return read_value(r, token);
  }
}

#define NEAR_ESCAPE                                                                                \
  16 /* bytes between escapes that are copied one by one: calls would take longer */

/* Writes what an escape means. Returns the place after the escape. */
static const uint8_t *unescape_one(const uint8_t *at, const uint8_t *end, uint8_t **to) {
  if (at[1] != 'u') {
    *(*to)++ = meanings[at[1]];
    return at + 2;
  }
  int32_t code = code_of(at, end);
  at += 6;
  if (is_high_surrogate(code)) {
    code = 0x10000 + ((code - 0xD800) << 10) + (code_of(at, end) - 0xDC00);
    at += 6;
  }
  *to = put_utf8(*to, code);
  return at;
}

size_t kw_json_unescape(const kw_json_token *token, uint8_t *to) {
  const uint8_t *at = token->text.data, *end = at + token->text.len, *from = to;
  while (at < end) {
    const uint8_t *near = end - at > NEAR_ESCAPE ? at + NEAR_ESCAPE : end;
    while (at < near && *at != '\\') *to++ = *at++;
    if (at == near && at < end) {
      const uint8_t *escape = memchr(at, '\\', (size_t)(end - at));
      size_t n = (size_t)((escape == NULL ? end : escape) - at);
      memcpy(to, at, n);
      to += n;
      at += n;
    }
    if (at < end) at = unescape_one(at, end, &to);
  }
  return (size_t)(to - from);
}

void kw_json_locate(kw_slice text, size_t offset, size_t *line, size_t *column) {
  size_t begin = 0; /* of the line */
  *line = 1;
  for (size_t i = 0; i < offset; i++) {
    if (text.data[i] != '\n') continue;
    ++*line;
    begin = i + 1;
  }
  *column = offset - begin + 1;
}

/* }====== */

/* {====== Writing ====== */

#define LEAST_ROOM KW_LIMIT(4096, 32)
#define MOST_ROOM 65536

enum { FIRST_ITEM, NEXT_ITEM, AFTER_NAME };

void kw_json_write(kw_json_writer *w, kw_chain *chain, uint8_t *room, size_t room_len, size_t max) {
  *w = (kw_json_writer){.chain = chain, .start = room, .at = room, .max = max};
  w->end = room == NULL ? room : room + kw_min_size(room_len, max);
}

static bool refuse(kw_json_writer *w, int error) {
  if (w->error == KW_OK) w->error = error;
  w->end = w->at; /* no room: every later write fails */
  return false;
}

/* Gives the written bytes to the chain. */
static bool flush(kw_json_writer *w) {
  size_t n = (size_t)(w->at - w->start);
  if (w->is_in_chain) {
    kw_chain_commit(w->chain, n);
  } else if (n > 0 && !kw_chain_add(w->chain, kw_slice_of(w->start, n))) {
    return refuse(w, KW_ERR_NO_MEMORY);
  }
  w->max -= n;
  w->start = w->at = w->end = NULL;
  w->is_in_chain = false;
  return true;
}

static bool make_room(kw_json_writer *w, size_t n) {
  if (w->error != KW_OK || !flush(w)) return false;
  if (n > w->max) return refuse(w, KW_ERR_RESOURCE_EXHAUSTED);
  size_t room = kw_min_size(w->chain->len, MOST_ROOM);
  if (room < LEAST_ROOM) room = LEAST_ROOM;
  room = kw_min_size(room < n ? n : room, w->max);
  w->start = kw_chain_reserve(w->chain, room);
  if (w->start == NULL) return refuse(w, KW_ERR_NO_MEMORY);
  w->at = w->start;
  w->end = w->start + room;
  w->is_in_chain = true;
  return true;
}

static inline bool put(kw_json_writer *w, const void *bytes, size_t n) {
  if ((size_t)(w->end - w->at) < n && !make_room(w, n)) return false;
  if (n > 0) memcpy(w->at, bytes, n);
  w->at += n;
  return true;
}

static inline bool put_byte(kw_json_writer *w, char c) {
  if (w->at == w->end && !make_room(w, 1)) return false;
  *w->at++ = (uint8_t)c;
  return true;
}

static bool begin_line(kw_json_writer *w) {
  size_t n = (size_t)w->indent * (size_t)w->depth;
  if (!put_byte(w, '\n')) return false;
  while (n-- > 0) {
    if (!put_byte(w, ' ')) return false;
  }
  return true;
}

/* Writes what comes before an item. */
static inline bool separate(kw_json_writer *w) {
  int place = w->place;
  w->place = NEXT_ITEM;
  if (place == NEXT_ITEM && !put_byte(w, ',')) return false;
  return w->indent == 0 || place == AFTER_NAME || w->depth == 0 || begin_line(w);
}

bool kw_json_begin(kw_json_writer *w, bool is_object) {
  if (!separate(w)) return false;
  w->place = FIRST_ITEM;
  w->depth++;
  return put_byte(w, is_object ? '{' : '[');
}

bool kw_json_end(kw_json_writer *w, bool is_object) {
  bool is_empty = w->place == FIRST_ITEM;
  w->place = NEXT_ITEM;
  w->depth--;
  if (w->indent > 0 && !is_empty && !begin_line(w)) return false;
  return put_byte(w, is_object ? '}' : ']');
}

static bool put_escape(kw_json_writer *w, uint8_t c) {
  static const char hex[] = "0123456789abcdef";
  char code[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
  if (names[c] != 0) code[1] = (char)names[c];
  return put(w, code, names[c] == 0 ? sizeof code : 2);
}

/* Writes the rest of a string, in which the byte at `stop` cannot stand for itself. */
static bool put_escaped(kw_json_writer *w, const uint8_t *at, const uint8_t *stop,
                        const uint8_t *end) {
  while (stop < end) {
    if (*stop >= 0x80) return refuse(w, KW_ERR_INVALID_ARGUMENT);
    if (!put(w, at, (size_t)(stop - at)) || !put_escape(w, *stop)) return false;
    at = stop + 1;
    stop = skip_text(at, end);
  }
  return put(w, at, (size_t)(end - at));
}

static bool put_quoted(kw_json_writer *w, kw_slice text) {
  const uint8_t *end = text.len == 0 ? text.data : text.data + text.len,
                *stop = skip_text(text.data, end);
  if (!put_byte(w, '"')) return false;
  bool ok = stop == end ? put(w, text.data, text.len) : put_escaped(w, text.data, stop, end);
  return ok && put_byte(w, '"');
}

bool kw_json_put_name(kw_json_writer *w, kw_slice name) {
  if (!separate(w) || !put_quoted(w, name)) return false;
  w->place = AFTER_NAME;
  return put_byte(w, ':') && (w->indent == 0 || put_byte(w, ' '));
}

bool kw_json_put_string(kw_json_writer *w, kw_slice text) {
  return separate(w) && put_quoted(w, text);
}

bool kw_json_put_raw(kw_json_writer *w, kw_slice json) {
  return separate(w) && put(w, json.data, json.len);
}

bool kw_json_put_integer(kw_json_writer *w, int64_t v) {
  char text[20], *end = text + sizeof text;
  char *at = kw_decimal_write_digits(end, v < 0 ? -(uint64_t)v : (uint64_t)v);
  if (v < 0) *--at = '-';
  return kw_json_put_raw(w, kw_slice_of(at, (size_t)(end - at)));
}

bool kw_json_put_double(kw_json_writer *w, double x) {
  char text[KW_DECIMAL_ROOM];
  if (!isfinite(x)) return refuse(w, KW_ERR_INVALID_ARGUMENT);
  return kw_json_put_raw(w, kw_slice_of(text, kw_decimal_write(x, text)));
}

bool kw_json_finish(kw_json_writer *w) {
  return w->error == KW_OK && flush(w);
}

/* }====== */
