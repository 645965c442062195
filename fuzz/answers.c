/* SPDX-License-Identifier: MIT */
#include "answers.h"

#include "codec/messages.h"
#include "frames.h"
#include "model/error.h"

#define MAX_ANSWER (64 << 20)
#define MAX_FRAME 16384 /* the largest frame that every peer accepts (RFC 9113 §4.2) */

void answers_expect(answers *a, uint32_t stream, const kw_message *message) {
  a->list = realloc(a->list, (a->n + 1) * sizeof *a->list);
  if (a->list == NULL) abort();
  a->list[a->n++] = (answer){
      .stream = stream, .message = message, .is_call = true, .splitter.max_len = MAX_ANSWER};
}

void answers_expect_http(answers *a) {
  a->list[a->n - 1].is_call = false;
}

static answer *find(answers *a, uint32_t stream) {
  for (size_t i = a->n; i-- > 0;) {
    if (a->list[i].stream == stream) return &a->list[i];
  }
  return NULL;
}

static void check_message(const kw_message *message, kw_slice bytes) {
  kw_arena arena = {0};
  if (message == NULL || message->size == 0) return;
  void *record = calloc(1, message->size);
  if (record == NULL) abort();
  must(kw_message_decode(message, bytes, &arena, record) == KW_OK, "an answer can be decoded");
  kw_arena_drop(&arena);
  free(record);
}

static void take_data(answers *a, answer *one, kw_slice data) {
  kw_slice message;
  kw_grpc_split found;
  if (!one->is_call) {
    a->n_body += data.len;
    return;
  }
  while ((found = kw_grpc_next(&one->splitter, &data, &message)) == KW_GRPC_MESSAGE) {
    check_message(one->message, message);
    a->n_messages++;
    a->n_of_watches += one->message == &kw_msg_watch_response;
  }
  must(found == KW_GRPC_MORE, "data is messages");
}

static void take_frame(answers *a, int type, int flags, uint32_t stream, kw_slice payload) {
  answer *one = find(a, stream);
  if (a->is_wild || one == NULL) return;
  if (type == FRAME_RST_STREAM) one->is_over = true;
  if (type != FRAME_HEADERS && type != FRAME_DATA) return;
  must(!one->is_over, "nothing follows the end of a stream");
  must(type == FRAME_HEADERS || one->has_begun, "headers come before data");
  one->has_begun = true;
  if (type == FRAME_DATA) take_data(a, one, payload);
  if (!(flags & FLAG_END_STREAM)) return;
  must(!one->is_call || kw_grpc_is_between(&one->splitter), "a stream ends with a whole message");
  one->is_over = true;
}

static uint64_t number(const uint8_t *from, int width) {
  uint64_t v = 0;
  while (width-- > 0) v = v << 8 | *from++;
  return v;
}

void answers_take(answers *a, kw_slice said) {
  size_t at = 0;
  bytes_add(&a->in, said);
  while (a->in.len - at >= FRAME_HEAD) {
    const uint8_t *head = a->in.data + at;
    size_t len = (size_t)number(head, 3);
    must(len <= MAX_FRAME, "a frame is not too large");
    must(head[3] <= FRAME_CONTINUATION, "a frame has a type");
    if (a->in.len - at - FRAME_HEAD < len) break;
    take_frame(a, head[3], head[4], (uint32_t)number(head + 5, 4),
               kw_slice_of(head + FRAME_HEAD, len));
    at += FRAME_HEAD + len;
  }
  bytes_skip(&a->in, at);
}

void answers_drop(answers *a) {
  for (size_t i = 0; i < a->n; i++) kw_grpc_drop(&a->list[i].splitter);
  free(a->list);
  bytes_drop(&a->in);
  *a = (answers){0};
}
