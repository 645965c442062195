/* SPDX-License-Identifier: MIT */
#include "request.h"

#include "connection.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_START "/registry/"
#define KEY_DIGITS 9
#define KEY_MARK "#########"

size_t request_min_key(void) {
  return strlen(KEY_START) + KEY_DIGITS;
}

static uint8_t *put_varint(uint8_t *to, uint64_t v) {
  for (; v >= 0x80; v >>= 7) *to++ = (uint8_t)v | 0x80;
  *to++ = (uint8_t)v;
  return to;
}

static uint8_t *put_number(uint8_t *to, unsigned field, uint64_t v) {
  return put_varint(put_varint(to, field << 3), v);
}

static uint8_t *put_length(uint8_t *to, unsigned field, size_t len) {
  return put_varint(put_varint(to, field << 3 | 2), len);
}

static size_t length_size(size_t len) {
  uint8_t room[16];
  return (size_t)(put_length(room, 1, len) - room);
}

/* Writes a key: a fixed start, zeros, and the digits of its number. */
static uint8_t *put_key(request *r, const request_form *form, uint8_t *to, unsigned field) {
  to = put_length(to, field, form->key_size);
  memset(to, '0', form->key_size);
  memcpy(to, KEY_START, strlen(KEY_START));
  to += form->key_size;
  r->keys_at[r->n_keys++] = (size_t)(to - r->message) - KEY_DIGITS;
  return to;
}

static uint8_t *put_value(const request_form *form, uint8_t *to, unsigned field) {
  to = put_length(to, field, form->value_size);
  memset(to, 'v', form->value_size);
  return to + form->value_size;
}

static uint8_t *put_text(uint8_t *to, const char *text) {
  size_t len = strlen(text);
  if (len > 126) die("too long for a header: %s", text);
  *to++ = (uint8_t)len;
  memcpy(to, text, len);
  return to + len;
}

/* Writes header fields as literals without indexing, so that all requests have the same bytes (RFC 7541 §6.2.2). */
static void make_block(request *r, const request_form *form, const char *path) {
  char authority[64];
  snprintf(authority, sizeof authority, "%s:%" PRIu64, form->address, form->port);
  uint8_t *to = r->block;
  *to++ = 0x83;                       /* :method POST */
  *to++ = form->is_tls ? 0x87 : 0x86; /* :scheme https, http */
  *to++ = 0x04;                       /* :path */
  to = put_text(to, path);
  *to++ = 0x01; /* :authority */
  to = put_text(to, authority);
  *to++ = 0x0f; /* content-type */
  *to++ = 0x10;
  to = put_text(to, "application/grpc");
  *to++ = 0x00;
  to = put_text(to, "te");
  to = put_text(to, "trailers");
  r->block_len = (size_t)(to - r->block);
}

static uint8_t *begin(request *r, const request_form *form, const char *path) {
  *r = (request){0};
  make_block(r, form, path);
  r->message = malloc(2 * form->key_size + form->value_size + 256);
  if (r->message == NULL) die("no memory");
  return r->message + GRPC_PREFIX;
}

static void end(request *r, const uint8_t *at) {
  r->len = (size_t)(at - r->message);
  size_t len = r->len - GRPC_PREFIX;
  r->message[0] = 0;
  for (int i = 0; i < 4; i++) r->message[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

void request_make_range(request *r, const request_form *form) {
  end(r, put_key(r, form, begin(r, form, "/etcdserverpb.KV/Range"), 1));
}

void request_make_put(request *r, const request_form *form) {
  uint8_t *to = begin(r, form, "/etcdserverpb.KV/Put");
  end(r, put_value(form, put_key(r, form, to, 1), 2));
}

void request_make_txn(request *r, const request_form *form) {
  size_t key = length_size(form->key_size) + form->key_size;
  size_t put = key + length_size(form->value_size) + form->value_size;
  uint8_t *to = begin(r, form, "/etcdserverpb.KV/Txn");
  to = put_length(to, 1, 6 + key);
  to = put_number(to, 1, 1); /* greater */
  to = put_number(to, 2, 2); /* mod_revision */
  to = put_key(r, form, to, 3);
  to = put_number(to, 6, 0);
  to = put_length(to, 2, length_size(put) + put);
  to = put_length(to, 2, put);
  end(r, put_value(form, put_key(r, form, to, 1), 2));
}

void request_make_watch(request *r, const request_form *form) {
  uint8_t number[16];
  size_t n = 0;
  if (form->start_revision > 0)
    n = (size_t)(put_number(number, 3, (uint64_t)form->start_revision) - number);
  uint8_t *to = begin(r, form, "/etcdserverpb.Watch/Watch");
  to = put_length(to, 1, length_size(form->key_size) + form->key_size + n);
  to = put_key(r, form, to, 1);
  memcpy(to, number, n);
  end(r, to + n);
}

void request_make_rest(request *r, const request_form *form, const char *method, const char *path,
                       const char *type, const char *body) {
  char authority[64];
  snprintf(authority, sizeof authority, "%s:%" PRIu64, form->address, form->port);
  *r = (request){.message = (uint8_t *)body, .len = body == NULL ? 0 : strlen(body)};
  uint8_t *to = r->block;
  *to++ = 0x02; /* :method */
  to = put_text(to, method);
  *to++ = form->is_tls ? 0x87 : 0x86; /* :scheme https, http */
  *to++ = 0x04;                       /* :path */
  const char *mark = strstr(path, KEY_MARK);
  if (mark != NULL) r->path_at = (size_t)(to + 1 - r->block) + (size_t)(mark - path);
  to = put_text(to, path);
  *to++ = 0x01; /* :authority */
  to = put_text(to, authority);
  *to++ = 0x0f; /* content-type */
  *to++ = 0x10;
  to = put_text(to, type);
  r->block_len = (size_t)(to - r->block);
  const char *key = body == NULL ? NULL : strstr(body, KEY_MARK);
  if (key != NULL) r->keys_at[r->n_keys++] = (size_t)(key - body);
}

static void write_digits(uint8_t *to, uint64_t key) {
  for (int i = KEY_DIGITS; i-- > 0; key /= 10) to[i] = (uint8_t)('0' + key % 10);
}

void request_write_path(request *r, uint64_t key) {
  if (r->path_at > 0) write_digits(r->block + r->path_at, key);
}

void request_write_key(request *r, uint64_t key) {
  for (unsigned i = 0; i < r->n_keys; i++) write_digits(r->message + r->keys_at[i], key);
}
