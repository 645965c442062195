/* SPDX-License-Identifier: MIT */
#include "script.h"

#include "codec/wire.h"

#define MAX_DEPTH (KW_MAX_NESTING + 10) /* of messages: a little deeper than what can be decoded */

static const int64_t edges[] = {
    -1,    INT64_MAX, INT64_MIN, 10,        16,      100,      127,           128,     255,
    256,   1000,      16383,     16384,     65535,   65536,    100000,        1 << 20, 8 << 20,
    60000, 5000,      INT32_MAX, INT32_MIN, 1 << 24, 10000000, (1 << 24) - 1, 86400000};

static const size_t repeats[] = {16,   63,   127,  128,  255,  500,   1000,  2000,
                                 4000, 4096, 4097, 5000, 9000, 16384, 20000, 33000};

bool script_next(script *s, script_line *line) {
  if (s->at == s->end) return false;
  const uint8_t *stop = memchr(s->at, '\n', (size_t)(s->end - s->at));
  *line = (script_line){s->at, stop == NULL ? s->end : stop};
  s->at = stop == NULL ? s->end : stop + 1;
  return true;
}

bool line_is_over(const script_line *line) {
  return line->at == line->end;
}

uint8_t line_byte(script_line *line) {
  if (line_is_over(line)) return 0;
  uint8_t byte = *line->at++;
  if (byte != '\\' || line_is_over(line)) return byte;
  return *line->at++ ^ 0x40;
}

int64_t line_number(script_line *line) {
  uint8_t byte = line_byte(line);
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'z') return edges[byte - 'a'];
  return byte;
}

int line_flags(script_line *line) {
  return line_is_over(line) ? 0 : line_byte(line) ^ '0';
}

void line_bytes(script_line *line, bytes *to) {
  uint8_t byte = line_byte(line);
  if (byte >= 'a' && byte <= 'j') {
    for (int n = byte - 'a'; n > 0; n--) bytes_add_byte(to, line_byte(line));
  } else if (byte >= 'k' && byte <= 'z') {
    size_t n = repeats[byte - 'k'];
    memset(bytes_grow(to, n), line_byte(line), n);
  } else {
    bytes_add_byte(to, byte);
  }
}

void line_rest(script_line *line, bytes *to) {
  while (!line_is_over(line)) bytes_add_byte(to, line_byte(line));
}

/* {====== Messages ====== */

static void put_message(script_line *line, const kw_message *message, int depth, bytes *to);

static const kw_field *pick_field(const kw_message *message, uint8_t byte) {
  if (message->n == 0) return NULL;
  const kw_field *field = byte > '0' ? kw_message_field(message, byte - '0') : NULL;
  return field != NULL ? field : &message->fields[byte % message->n];
}

static void put_field(script_line *line, const kw_field *field, int depth, bytes *to) {
  bytes inner = {0};
  if (kw_field_is_number(field)) {
    bytes_add_varint(to, KW_WIRE_TAG(field->number, KW_WIRE_VARINT));
    bytes_add_varint(to, (uint64_t)line_number(line));
    return;
  }
  if (field->kind == KW_FIELD_MESSAGE) {
    put_message(line, field->message, depth + 1, &inner);
  } else {
    line_bytes(line, &inner);
  }
  bytes_add_varint(to, KW_WIRE_TAG(field->number, KW_WIRE_BYTES));
  bytes_add_varint(to, inner.len);
  bytes_add(to, bytes_slice(&inner));
  bytes_drop(&inner);
}

static void put_message(script_line *line, const kw_message *message, int depth, bytes *to) {
  while (!line_is_over(line) && depth < MAX_DEPTH) {
    uint8_t byte = line_byte(line);
    if (byte == '.') return;
    const kw_field *field = byte == '!' ? NULL : pick_field(message, byte);
    if (field != NULL) {
      put_field(line, field, depth, to);
    } else {
      line_bytes(line, to);
    }
  }
}

void line_message(script_line *line, const kw_message *message, bytes *to) {
  put_message(line, message, 0, to);
}

/* }====== */

/* {====== Mutation ====== */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max, unsigned seed);

typedef struct choice {
  uint64_t state;
} choice;

/* splitmix64 */
static size_t choose(choice *c, size_t below) {
  uint64_t z = c->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return below == 0 ? 0 : (size_t)((z ^ z >> 31) % below);
}

/* Finds a line that is not empty, with its newline, if there is one. */
static kw_slice some_line(choice *c, const uint8_t *data, size_t size) {
  size_t from = choose(c, size), to = from;
  while (from > 0 && data[from - 1] != '\n') from--;
  while (to < size && data[to++] != '\n') continue;
  return kw_slice_of(data + from, to - from);
}

/* Replaces bytes by others. Returns false if the result does not fit. */
static bool replace(uint8_t *data, size_t *size, size_t max, kw_slice what, kw_slice with) {
  size_t from = (size_t)(what.data - data);
  size_t after = *size - from - what.len;
  if (*size - what.len + with.len > max) return false;
  memmove(data + from + with.len, data + from + what.len, after);
  if (with.len > 0) memcpy(data + from, with.data, with.len);
  *size = from + with.len + after;
  return true;
}

static size_t mutate_line(uint8_t *data, size_t size, size_t max, kw_slice line) {
  size_t room = line.len + 64;
  uint8_t *copy = malloc(room);
  if (copy == NULL) return size;
  memcpy(copy, line.data, line.len);
  size_t len = line.data[line.len - 1] == '\n' ? line.len - 1 : line.len;
  len = LLVMFuzzerMutate(copy, len, room - 1);
  copy[len++] = '\n';
  replace(data, &size, max, line, kw_slice_of(copy, len));
  free(copy);
  return size;
}

static size_t repeat_line(choice *c, uint8_t *data, size_t size, size_t max) {
  kw_slice line = some_line(c, data, size);
  uint8_t *copy = bytes_exact(line);
  kw_slice place = some_line(c, data, size);
  place.len = 0;
  replace(data, &size, max, place, kw_slice_of(copy, line.len));
  free(copy);
  return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
  choice c = {seed};
  if (size < 2) return LLVMFuzzerMutate(data, size, max);
  switch (choose(&c, 8)) {
    case 0: return repeat_line(&c, data, size, max);
    case 1: replace(data, &size, max, some_line(&c, data, size), (kw_slice){0}); return size;
    case 2:
    case 3: return LLVMFuzzerMutate(data, size, max);
    default: return mutate_line(data, size, max, some_line(&c, data, size));
  }
}

/* Crossover: copies some lines of one script into the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max, unsigned seed) {
  choice c = {seed};
  size_t size = kw_min_size(a_size, max);
  memcpy(out, a, size);
  for (size_t n = 1 + choose(&c, 4); n > 0 && size > 0 && b_size > 0; n--) {
    kw_slice place = some_line(&c, out, size);
    place.len = 0;
    replace(out, &size, max, place, some_line(&c, b, b_size));
  }
  return size;
}

/* }====== */
