/* SPDX-License-Identifier: MIT */
#include "h2/state.h"

#define GRPC_TYPE "application/grpc"
#define NO_COPY (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)

/* {====== Received fields ====== */

static int number_of(kw_slice text, int otherwise) {
  int n = 0;
  if (text.len == 0 || text.len > 3) return otherwise;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return otherwise;
    n = n * 10 + (text.data[i] - '0');
  }
  return n;
}

#define IN_EVERY_BYTE UINT64_C(0x0101010101010101)

/* True if one of eight bytes is less than n, which is at most 128. */
static inline bool has_byte_below(uint64_t bytes, uint8_t n) {
  return ((bytes - IN_EVERY_BYTE * n) & ~bytes & IN_EVERY_BYTE << 7) != 0;
}

/* True for the bytes that HTTP/2 allows in a name: no upper case, no spaces, and a colon only at the beginning. */
static bool is_of_name(uint8_t c, bool is_first) {
  return c > ' ' && c < 127 && (c < 'A' || c > 'Z') && (c != ':' || is_first);
}

static bool is_name(kw_slice name) {
  for (size_t i = 0; i < name.len; i++) {
    if ((uint8_t)(name.data[i] - 'a') < 26) continue; /* nearly always */
    if (!is_of_name(name.data[i], i == 0)) return false;
  }
  return name.len > 0;
}

static bool has_forbidden(const uint8_t *value, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (value[i] == 0 || value[i] == '\n' || value[i] == '\r') return true;
  return false;
}

/* True for a value without zero bytes and line ends. Eight bytes are checked at a time: if all of them are above '\r',
 * none is forbidden. */
static bool is_value(kw_slice value) {
  size_t at = 0;
  for (; value.len - at >= 8; at += 8) {
    uint64_t bytes;
    memcpy(&bytes, value.data + at, sizeof bytes);
    if (has_byte_below(bytes, '\r' + 1) && has_forbidden(value.data + at, 8)) return false;
  }
  return !has_forbidden(value.data + at, value.len - at);
}

static bool is_connection_specific(kw_slice name) {
  return kw_slice_is(name, "connection") || kw_slice_is(name, "keep-alive") ||
         kw_slice_is(name, "proxy-connection") || kw_slice_is(name, "transfer-encoding") ||
         kw_slice_is(name, "upgrade");
}

/* True if pseudo-header fields come first, and no field is one that HTTP/2 forbids. */
static bool is_in_order(kw_known_fields *known, kw_slice name) {
  if (name.data[0] == ':') return !known->has_regular;
  known->has_regular = true;
  return !is_connection_specific(name);
}

void kw_known_note(kw_known_fields *known, const kw_http_field *field) {
  kw_slice name = field->name;
  if (!is_name(name) || !is_value(field->value) || !is_in_order(known, name)) {
    known->is_malformed = true;
    return;
  }
  if (kw_slice_is(name, ":path")) {
    known->path = field->value;
  } else if (kw_slice_is(name, ":method")) {
    known->method = field->value;
  } else if (kw_slice_is(name, "content-type")) {
    known->content_type = field->value;
  } else if (kw_slice_is(name, "grpc-timeout")) {
    known->timeout = field->value;
  } else if (kw_slice_is(name, "grpc-encoding")) {
    known->encoding = field->value;
  } else if (kw_slice_is(name, ":status")) {
    known->http_status = number_of(field->value, 0);
  } else if (kw_slice_is(name, "grpc-status")) {
    known->status = number_of(field->value, KW_GRPC_UNKNOWN);
    if (known->status > 16) known->status = KW_GRPC_UNKNOWN;
    known->has_status = true;
  } else if (kw_slice_is(name, "grpc-message")) {
    known->text = field->value;
  }
}

bool kw_known_is_grpc(const kw_known_fields *known) {
  kw_slice type = known->content_type;
  size_t len = sizeof GRPC_TYPE - 1;
  if (type.len < len || memcmp(type.data, GRPC_TYPE, len) != 0) return false;
  return type.len == len || type.data[len] == '+' || type.data[len] == ';';
}

bool kw_known_is_plus_proto(const kw_known_fields *known) {
  return kw_slice_is(known->content_type, GRPC_TYPE "+proto");
}

int kw_status_of_http(int http_status) {
  switch (http_status) {
    case 400: return KW_GRPC_INTERNAL;
    case 401: return 16;
    case 403: return 7;
    case 404: return KW_GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504: return KW_GRPC_UNAVAILABLE;
    default: return KW_GRPC_UNKNOWN;
  }
}

int kw_status_of_reset(uint32_t code) {
  switch (code) {
    case NGHTTP2_REFUSED_STREAM: return KW_GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL: return KW_GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
    case NGHTTP2_FLOW_CONTROL_ERROR: return KW_GRPC_RESOURCE_EXHAUSTED;
    default: return KW_GRPC_INTERNAL;
  }
}

/* }====== */

/* {====== Sent fields ====== */

static nghttp2_nv field_of(const char *name, kw_slice value, uint8_t flags) {
  return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value.data, strlen(name), value.len, flags};
}

static nghttp2_nv fixed_field(const char *name, const char *value) {
  return field_of(name, kw_slice_of(value, strlen(value)), NO_COPY);
}

static const char *http_status_text(int http_status) {
  switch (http_status) {
    case 400: return "400";
    case 431: return "431";
    default: return "200";
  }
}

size_t kw_answer_fields(const kw_stream *stream, nghttp2_nv *to) {
  to[0] = fixed_field(":status", http_status_text(stream->http_status));
  to[1] = fixed_field("content-type", stream->is_plus_proto ? GRPC_TYPE "+proto" : GRPC_TYPE);
  return 2;
}

size_t kw_trailer_fields(const kw_stream *stream, uint8_t *text, nghttp2_nv *to) {
  static const char *const numbers[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
  int status = stream->status < KW_LENGTH(numbers) ? stream->status : KW_GRPC_UNKNOWN;
  to[0] = fixed_field("grpc-status", numbers[status]);
  if (stream->text == NULL) return 1;
  kw_slice words = kw_blob_slice(stream->text);
  words.len = kw_min_size(words.len, KW_STATUS_TEXT);
  size_t len = kw_grpc_escape(words, text);
  to[1] = field_of("grpc-message", kw_slice_of(text, len), NGHTTP2_NV_FLAG_NO_COPY_NAME);
  return 2;
}

size_t kw_request_fields(nghttp2_nv *to, const char *scheme, kw_slice authority, kw_slice path,
                         const kw_http_field *fields, size_t n) {
  nghttp2_nv *at = to;
  *at++ = fixed_field(":method", "POST");
  *at++ = fixed_field(":scheme", scheme);
  *at++ = field_of(":path", path, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  *at++ = field_of(":authority", authority, NGHTTP2_NV_FLAG_NO_COPY_NAME);
  *at++ = fixed_field("content-type", GRPC_TYPE);
  *at++ = fixed_field("te", "trailers");
  *at++ = fixed_field("user-agent", "keywatch");
  for (size_t i = 0; i < n && i < KW_MAX_METADATA; i++) {
    *at++ = (nghttp2_nv){(uint8_t *)fields[i].name.data, (uint8_t *)fields[i].value.data,
                         fields[i].name.len, fields[i].value.len, NGHTTP2_NV_FLAG_NONE};
  }
  return (size_t)(at - to);
}

/* }====== */
