/* SPDX-License-Identifier: MIT */
#include "http/write.h"

#include "http/head.h"
#include "http/target.h"

#define STATUSES 600
#define EXTRA_ROOM 256 /* for a status line, and the names and numbers of the extra fields */

static const char *const reasons[STATUSES] = {[100] = "Continue",
                                              [101] = "Switching Protocols",
                                              [200] = "OK",
                                              [201] = "Created",
                                              [202] = "Accepted",
                                              [204] = "No Content",
                                              [206] = "Partial Content",
                                              [301] = "Moved Permanently",
                                              [302] = "Found",
                                              [303] = "See Other",
                                              [304] = "Not Modified",
                                              [307] = "Temporary Redirect",
                                              [308] = "Permanent Redirect",
                                              [400] = "Bad Request",
                                              [401] = "Unauthorized",
                                              [403] = "Forbidden",
                                              [404] = "Not Found",
                                              [405] = "Method Not Allowed",
                                              [406] = "Not Acceptable",
                                              [408] = "Request Timeout",
                                              [409] = "Conflict",
                                              [410] = "Gone",
                                              [412] = "Precondition Failed",
                                              [413] = "Content Too Large",
                                              [414] = "URI Too Long",
                                              [415] = "Unsupported Media Type",
                                              [417] = "Expectation Failed",
                                              [421] = "Misdirected Request",
                                              [422] = "Unprocessable Content",
                                              [429] = "Too Many Requests",
                                              [431] = "Request Header Fields Too Large",
                                              [500] = "Internal Server Error",
                                              [501] = "Not Implemented",
                                              [502] = "Bad Gateway",
                                              [503] = "Service Unavailable",
                                              [504] = "Gateway Timeout",
                                              [505] = "HTTP Version Not Supported"};

const char *kw_write_reason(int status) {
  return status >= 0 && status < STATUSES && reasons[status] != NULL ? reasons[status] : "";
}

/* {====== Checks ====== */

/* Returns the size of fields in HTTP/2, as nghttp2 bounds it; those of HTTP/1.1 are not larger. */
static size_t fields_size(const kw_http_field *fields, size_t n) {
  size_t size = 0;
  for (size_t i = 0; i < n; i++) size += fields[i].name.len + fields[i].value.len + 12;
  return size;
}

bool kw_write_allows(const kw_http_field *fields, size_t n) {
  if (fields_size(fields, n) > KW_WRITE_FIELDS) return false;
  for (size_t i = 0; i < n; i++) {
    if (!kw_text_is_token(fields[i].name) || !kw_text_is_value(fields[i].value)) return false;
    if (kw_head_is_reserved(fields[i].name)) return false;
  }
  return true;
}

bool kw_write_allows_request(const kw_http_request *request) {
  kw_target target;
  if (!kw_text_is_token(request->method) || kw_slice_is(request->method, "CONNECT")) return false;
  if (kw_target_parse(request->method, request->path, &target) != NULL) return false;
  size_t size = fields_size(request->fields, request->n_fields) + request->method.len +
                request->path.len + request->authority.len;
  return request->length >= -1 && size <= KW_WRITE_FIELDS &&
         kw_text_is_authority(request->authority) && kw_text_is_value(request->upgrade) &&
         kw_write_allows(request->fields, request->n_fields);
}

bool kw_write_has_length(const kw_http_request *request) {
  bool has_body = kw_slice_is(request->method, "POST") || kw_slice_is(request->method, "PUT") ||
                  kw_slice_is(request->method, "PATCH");
  return request->length > 0 || (request->length == 0 && has_body);
}

/* }====== */

kw_slice kw_write_date(const kw_http_answer *answer, const kw_exchange_hooks *hooks, void *ctx) {
  bool has_date = hooks->date == NULL;
  for (size_t i = 0; i < answer->n_fields; i++)
    has_date |= kw_text_equal(answer->fields[i].name, "date");
  return has_date ? (kw_slice){0} : hooks->date(ctx);
}

/* {====== Parts ====== */

static uint8_t *put(uint8_t *to, kw_slice bytes) {
  if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
  return to + bytes.len;
}

static uint8_t *put_text(uint8_t *to, const char *text) {
  return put(to, kw_slice_text(text));
}

static uint8_t *put_field(uint8_t *to, kw_slice name, kw_slice value) {
  to = put_text(put(to, name), ": ");
  return put_text(put(to, value), "\r\n");
}

static uint8_t *put_fields(uint8_t *to, const kw_http_field *fields, size_t n) {
  for (size_t i = 0; i < n; i++) to = put_field(to, fields[i].name, fields[i].value);
  return to;
}

static uint8_t *put_length(uint8_t *to, int64_t length) {
  char digits[24];
  char *at = digits + sizeof digits;
  do {
    *--at = (char)('0' + length % 10);
    length /= 10;
  } while (length > 0);
  return put_field(to, kw_slice_text("content-length"),
                   kw_slice_of(at, (size_t)(digits + sizeof digits - at)));
}

/* Also ends the head. */
static uint8_t *put_extra(uint8_t *to, kw_slice upgrade, const kw_write_extra *extra) {
  if (extra->date.len > 0) to = put_field(to, kw_slice_text("date"), extra->date);
  if (extra->framing == KW_WRITE_LENGTH) to = put_length(to, extra->length);
  if (extra->framing == KW_WRITE_CHUNKED) to = put_text(to, "transfer-encoding: chunked\r\n");
  if (extra->connection != NULL)
    to = put_field(to, kw_slice_text("connection"), kw_slice_text(extra->connection));
  if (upgrade.len > 0) to = put_field(to, kw_slice_text("upgrade"), upgrade);
  return put_text(to, "\r\n");
}

/* }====== */

bool kw_write_answer(kw_chain *chain, const kw_http_answer *answer, const kw_write_extra *extra) {
  size_t size = EXTRA_ROOM + fields_size(answer->fields, answer->n_fields) + extra->date.len +
                answer->upgrade.len;
  uint8_t *head = kw_chain_reserve(chain, size), *to = head;
  if (head == NULL) return false;
  to = put_text(to, "HTTP/1.1 ");
  *to++ = (uint8_t)('0' + answer->status / 100);
  *to++ = (uint8_t)('0' + answer->status / 10 % 10);
  *to++ = (uint8_t)('0' + answer->status % 10);
  to = put_text(put_text(put_text(to, " "), kw_write_reason(answer->status)), "\r\n");
  to = put_extra(put_fields(to, answer->fields, answer->n_fields), answer->upgrade, extra);
  kw_chain_commit(chain, (size_t)(to - head));
  return true;
}

bool kw_write_request(kw_chain *chain, const kw_http_request *r, const kw_write_extra *extra) {
  size_t size = EXTRA_ROOM + fields_size(r->fields, r->n_fields) + r->method.len + r->path.len +
                r->authority.len + r->upgrade.len;
  uint8_t *head = kw_chain_reserve(chain, size), *to = head;
  if (head == NULL) return false;
  to = put_text(put(to, r->method), " ");
  to = put_text(put(to, r->path), " HTTP/1.1\r\n");
  to = put_field(to, kw_slice_text("host"), r->authority);
  to = put_extra(put_fields(to, r->fields, r->n_fields), r->upgrade, extra);
  kw_chain_commit(chain, (size_t)(to - head));
  return true;
}

bool kw_write_trailers(kw_chain *chain, const kw_http_field *trailers, size_t n) {
  size_t size = EXTRA_ROOM + fields_size(trailers, n);
  uint8_t *last = kw_chain_reserve(chain, size), *to = last;
  if (last == NULL) return false;
  to = put_fields(put_text(to, "0\r\n"), trailers, n);
  to = put_text(to, "\r\n");
  kw_chain_commit(chain, (size_t)(to - last));
  return true;
}
