/* SPDX-License-Identifier: MIT */
#include "http/head.h"

#include "http/target.h"

#define MAX_LENGTH_DIGITS 18

static kw_refusal refuse(int status, const char *text) {
  return (kw_refusal){status, text};
}

static const kw_refusal fine;

/* {====== The end of a head ====== */

/* The same bytes give the same refusal, in whichever pieces they arrive: limits are checked before the content. */
static kw_refusal check_size(const kw_head_search *search, size_t end, size_t max_line,
                             size_t max_head) {
  if (search->line_number == 0 && end - search->line > max_line)
    return refuse(414, "the first line is too long");
  return end < max_head ? fine : refuse(431, "the head is too large");
}

kw_refusal kw_head_find(kw_head_search *search, kw_slice bytes, size_t max_line, size_t max_head,
                        size_t *len) {
  const uint8_t *feed = NULL;
  kw_refusal refusal;
  *len = 0;
  while (search->at < bytes.len &&
         (feed = memchr(bytes.data + search->at, '\n', bytes.len - search->at)) != NULL) {
    size_t end = (size_t)(feed - bytes.data);
    refusal = check_size(search, end, max_line, max_head);
    if (refusal.status != 0) return refusal;
    if (end == search->line || feed[-1] != '\r') return refuse(400, "a line ends without CR");
    if (end == search->line + 1) {
      *len = end + 1;
      return fine;
    }
    if (search->line_number > KW_HEAD_FIELDS) return refuse(431, "there are too many fields");
    search->at = search->line = end + 1;
    search->line_number++;
  }
  search->at = bytes.len;
  return check_size(search, bytes.len - (bytes.len > search->line), max_line, max_head);
}

/* }====== */

/* {====== Fields ====== */

/* Fields that the connection interprets. */
typedef enum known_field {
  CONNECTION,
  CONTENT_LENGTH,
  EXPECT,
  HOST,
  KEEP_ALIVE,
  PROXY_CONNECTION,
  TRANSFER_ENCODING,
  UPGRADE,
  OTHER /* and the number of the names */
} known_field;

/* Returns OTHER if the connection does not interpret the field. The names differ in their lengths, except for two. */
static known_field find_name(kw_slice name) {
  switch (name.len) {
    case 4: return kw_text_equal(name, "host") ? HOST : OTHER;
    case 6: return kw_text_equal(name, "expect") ? EXPECT : OTHER;
    case 7: return kw_text_equal(name, "upgrade") ? UPGRADE : OTHER;
    case 10:
      if (kw_text_equal(name, "connection")) return CONNECTION;
      return kw_text_equal(name, "keep-alive") ? KEEP_ALIVE : OTHER;
    case 14: return kw_text_equal(name, "content-length") ? CONTENT_LENGTH : OTHER;
    case 16: return kw_text_equal(name, "proxy-connection") ? PROXY_CONNECTION : OTHER;
    case 17: return kw_text_equal(name, "transfer-encoding") ? TRANSFER_ENCODING : OTHER;
    default: return OTHER;
  }
}

bool kw_head_is_reserved(kw_slice name) {
  known_field known = find_name(name);
  return known != OTHER && known != EXPECT;
}

/* What the known fields of a head say. */
typedef struct facts {
  kw_slice values[OTHER]; /* of the last field of each name */
  unsigned counts[OTHER];
  bool says_close;
  bool says_keep_alive;
  bool says_upgrade;
} facts;

static void note_connection(facts *f, kw_slice list) {
  kw_slice option;
  while (kw_text_next(&list, &option)) {
    f->says_close |= kw_text_equal(option, "close");
    f->says_keep_alive |= kw_text_equal(option, "keep-alive");
    f->says_upgrade |= kw_text_equal(option, "upgrade");
  }
}

static void note_field(kw_head *head, facts *f, kw_http_field field) {
  known_field known = find_name(field.name);
  if (known == CONNECTION) note_connection(f, field.value);
  if (known != OTHER) {
    f->values[known] = field.value;
    f->counts[known]++;
  }
  if (known == OTHER || known == CONTENT_LENGTH || known == EXPECT)
    head->fields[head->n_fields++] = field;
}

/* Takes a line, without its end. There is one: the head was found. */
static kw_slice take_line(kw_slice *bytes) {
  const uint8_t *feed = memchr(bytes->data, '\n', bytes->len);
  size_t len = (size_t)(feed - bytes->data) + 1;
  kw_slice line = kw_slice_of(bytes->data, len - 2);
  *bytes = kw_slice_of(bytes->data + len, bytes->len - len);
  return line;
}

static kw_refusal parse_field(kw_slice line, kw_http_field *field) {
  size_t len = kw_text_token(line);
  if (line.data[0] == ' ' || line.data[0] == '\t') return refuse(400, "a field is folded");
  if (len == line.len) return refuse(400, "a field has no colon");
  if (len == 0 || line.data[len] != ':') return refuse(400, "the name of a field is not valid");
  field->name = kw_slice_of(line.data, len);
  field->value = kw_text_trim(kw_slice_of(line.data + len + 1, line.len - len - 1));
  return kw_text_is_value(field->value) ? fine : refuse(400, "the value of a field is not valid");
}

static kw_refusal parse_fields(kw_slice bytes, kw_head *head, facts *f) {
  kw_slice line;
  *f = (facts){0};
  head->n_fields = 0;
  while ((line = take_line(&bytes)).len > 0) {
    kw_http_field field;
    kw_refusal refusal = parse_field(line, &field);
    if (refusal.status != 0) return refusal;
    note_field(head, f, field);
  }
  return fine;
}

kw_refusal kw_head_parse_trailers(kw_slice bytes, kw_head *head) {
  facts f;
  return parse_fields(bytes, head, &f);
}

static kw_refusal take_fields(const kw_http_field *fields, size_t n, kw_head *head, facts *f) {
  *f = (facts){0};
  head->n_fields = 0;
  if (n > KW_HEAD_FIELDS) return refuse(431, "there are too many fields");
  for (size_t i = 0; i < n; i++) {
    if (!kw_text_is_token(fields[i].name)) return refuse(400, "the name of a field is not valid");
    if (!kw_text_is_value(fields[i].value)) return refuse(400, "the value of a field is not valid");
    note_field(head, f, fields[i]);
  }
  return fine;
}

kw_refusal kw_head_take_trailers(const kw_http_field *fields, size_t n, kw_head *head) {
  facts f;
  return take_fields(fields, n, head, &f);
}

/* }====== */

/* {====== The body that follows ====== */

/* Returns the value of a content-length, or -1. */
static int64_t parse_length(kw_slice text) {
  int64_t length = 0;
  if (text.len == 0 || text.len > MAX_LENGTH_DIGITS) return -1;
  if (text.data[0] == '0' && text.len > 1) return -1;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return -1;
    length = length * 10 + text.data[i] - '0';
  }
  return length;
}

static kw_refusal check_coding(const kw_head *head, const facts *f) {
  if (head->minor == 0) return refuse(400, "HTTP/1.0 has no transfer-encoding");
  if (f->counts[CONTENT_LENGTH] > 0)
    return refuse(400, "there are both content-length and transfer-encoding");
  if (f->counts[TRANSFER_ENCODING] > 1) return refuse(400, "there are several transfer-encodings");
  if (!kw_text_equal(f->values[TRANSFER_ENCODING], "chunked"))
    return refuse(501, "the transfer-encoding is not chunked");
  return fine;
}

/* Sets *length to that of the body: -1 if it is chunked, or if there is no field about it. */
static kw_refusal parse_framing(kw_head *head, const facts *f, int64_t *length) {
  *length = -1;
  head->is_chunked = f->counts[TRANSFER_ENCODING] > 0;
  if (head->is_chunked) return check_coding(head, f);
  if (f->counts[CONTENT_LENGTH] == 0) return fine;
  if (f->counts[CONTENT_LENGTH] > 1) return refuse(400, "there are several content-lengths");
  *length = parse_length(f->values[CONTENT_LENGTH]);
  return *length >= 0 ? fine : refuse(400, "the content-length is not valid");
}

static void note_facts(kw_head *head, const facts *f) {
  head->closes = f->says_close || (head->minor == 0 && !f->says_keep_alive);
  head->upgrade = f->says_upgrade && head->minor == 1 ? f->values[UPGRADE] : (kw_slice){0};
}

/* }====== */

/* Parses HTTP/1.0 or HTTP/1.1. */
static kw_refusal parse_version(kw_slice text, kw_head *head) {
  static const char http[] = "HTTP/";
  size_t n = sizeof http - 1;
  if (text.len != n + 3 || memcmp(text.data, http, n) != 0 || text.data[n + 1] != '.')
    return refuse(400, "the message is not HTTP");
  if (text.data[n] != '1' || (text.data[n + 2] != '0' && text.data[n + 2] != '1'))
    return refuse(505, "the version is neither HTTP/1.1 nor HTTP/1.0");
  head->minor = text.data[n + 2] - '0';
  return fine;
}

/* {====== Requests ====== */

/* Takes what precedes the next space. Without a space the line is used up. */
static kw_slice take_word(kw_slice *line) {
  const uint8_t *space = line->len > 0 ? memchr(line->data, ' ', line->len) : NULL;
  size_t len = space == NULL ? line->len : (size_t)(space - line->data);
  kw_slice word = kw_slice_of(line->data, len);
  len += space != NULL;
  *line = kw_slice_of(line->data + len, line->len - len);
  return word;
}

static kw_refusal check_target(const kw_http_request *request, kw_slice text, kw_target *target) {
  if (kw_slice_is(request->method, "CONNECT")) return refuse(501, "CONNECT is not supported");
  const char *fault = kw_target_parse(request->method, text, target);
  return fault == NULL ? fine : refuse(400, fault);
}

static kw_refusal parse_request_line(kw_slice line, kw_head *head) {
  kw_http_request *request = &head->request;
  kw_target target;
  request->method = take_word(&line);
  kw_slice text = take_word(&line);
  if (!kw_text_is_token(request->method)) return refuse(400, "the method is not valid");
  kw_refusal refusal = parse_version(line, head);
  if (refusal.status == 0) refusal = check_target(request, text, &target);
  if (refusal.status != 0) return refusal;
  request->authority = target.authority;
  request->scheme = target.scheme;
  request->path = target.path;
  return fine;
}

/* Takes the host of the field. In HTTP/1.1 that of a URL has precedence (RFC 9112 §3.2.2); in HTTP/2 the authority
 * stands for the field, and may not be another host (RFC 9113 §8.3.1). */
static kw_refusal check_host(kw_head *head, const facts *f) {
  kw_http_request *request = &head->request;
  kw_slice host = f->values[HOST];
  bool is_named = request->authority.len > 0;
  if (f->counts[HOST] > 1) return refuse(400, "there are several hosts");
  if (f->counts[HOST] == 0) {
    bool is_needed = head->minor == 1 || (head->minor == KW_HEAD_HTTP2 && !is_named);
    return is_needed ? refuse(400, "there is no host") : fine;
  }
  if (!kw_text_is_authority(host)) return refuse(400, "the host is not valid");
  if (!is_named) request->authority = host;
  return head->minor == KW_HEAD_HTTP2 && !kw_slice_equal(request->authority, host)
             ? refuse(400, "there are several hosts")
             : fine;
}

static kw_refusal check_expectation(kw_head *head, const facts *f) {
  if (f->counts[EXPECT] == 0 || head->minor == 0) return fine;
  if (f->counts[EXPECT] > 1 || !kw_text_equal(f->values[EXPECT], "100-continue"))
    return refuse(417, "the expectation is not 100-continue");
  head->expects = head->request.length != 0;
  return fine;
}

/* Checks what the fields of a request say, and takes it into the head. */
static kw_refusal finish_request(kw_head *head, const facts *f) {
  kw_http_request *request = &head->request;
  kw_refusal refusal = check_host(head, f);
  if (refusal.status == 0) refusal = parse_framing(head, f, &request->length);
  if (refusal.status != 0) return refusal;
  if (request->length < 0 && !head->is_chunked && head->minor < KW_HEAD_HTTP2) request->length = 0;
  note_facts(head, f);
  request->upgrade = head->upgrade;
  request->fields = head->fields;
  request->n_fields = head->n_fields;
  return check_expectation(head, f);
}

kw_refusal kw_head_parse_request(kw_slice bytes, kw_head *head) {
  facts f;
  head->expects = false;
  kw_refusal refusal = parse_request_line(take_line(&bytes), head);
  if (refusal.status == 0) refusal = parse_fields(bytes, head, &f);
  return refusal.status == 0 ? finish_request(head, &f) : refusal;
}

kw_refusal kw_head_take_request(const kw_http_field *fields, size_t n, kw_head *head) {
  const kw_http_request *request = &head->request;
  kw_target target;
  facts f;
  head->minor = KW_HEAD_HTTP2;
  head->expects = false;
  if (!kw_text_is_token(request->method)) return refuse(400, "the method is not valid");
  kw_refusal refusal = check_target(request, request->path, &target);
  if (refusal.status != 0) return refusal;
  if (!kw_slice_is(request->scheme, "http") && !kw_slice_is(request->scheme, "https"))
    return refuse(400, "the scheme is neither http nor https");
  if (request->authority.len > 0 && !kw_text_is_authority(request->authority))
    return refuse(400, "the host is not valid");
  refusal = take_fields(fields, n, head, &f);
  return refusal.status == 0 ? finish_request(head, &f) : refusal;
}

/* }====== */

/* {====== Answers ====== */

static kw_refusal parse_status_line(kw_slice line, kw_head *head) {
  kw_refusal refusal = parse_version(take_word(&line), head);
  kw_slice status = take_word(&line);
  if (refusal.status != 0) return refusal;
  if (status.len != 3 || parse_length(status) < 100 || parse_length(status) > 599)
    return refuse(400, "the status is not valid");
  if (!kw_text_is_value(line)) return refuse(400, "the text of the status is not valid");
  head->answer.status = (int)parse_length(status);
  return fine;
}

static kw_refusal finish_answer(kw_head *head, const facts *f) {
  kw_http_answer *answer = &head->answer;
  kw_refusal refusal = parse_framing(head, f, &answer->length);
  if (refusal.status != 0) return refusal;
  note_facts(head, f);
  answer->upgrade = head->upgrade;
  answer->fields = head->fields;
  answer->n_fields = head->n_fields;
  return fine;
}

kw_refusal kw_head_parse_answer(kw_slice bytes, kw_head *head) {
  facts f;
  kw_refusal refusal = parse_status_line(take_line(&bytes), head);
  if (refusal.status == 0) refusal = parse_fields(bytes, head, &f);
  return refusal.status == 0 ? finish_answer(head, &f) : refusal;
}

kw_refusal kw_head_take_answer(const kw_http_field *fields, size_t n, kw_head *head) {
  facts f;
  head->minor = KW_HEAD_HTTP2;
  kw_refusal refusal = take_fields(fields, n, head, &f);
  return refusal.status == 0 ? finish_answer(head, &f) : refusal;
}

/* }====== */
