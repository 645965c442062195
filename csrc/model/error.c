/* SPDX-License-Identifier: MIT */
#include "model/error.h"

#include "base/file.h"

static const kw_error_info errors[] = {
#define X(name, symbol, status, words) {.code = symbol, .text = words, .grpc_status = status},
    KW_ERRORS(X)
#undef X
};

const kw_error_info *kw_error_describe(int rc) {
  int i = rc - KW_ERR_BEFORE_FIRST_ - 1;
  assert(i >= 0 && (size_t)i < KW_LENGTH(errors));
  return &errors[i];
}

static _Thread_local int last_number; /* see kw_error_storage */

int kw_error_of_errno(int number) {
  return kw_is_no_room(number) ? KW_ERR_NO_SPACE : kw_error_storage(number);
}

int kw_error_storage(int number) {
  last_number = number;
  return KW_ERR_STORAGE;
}

int kw_error_take_number(void) {
  int number = last_number;
  last_number = 0;
  return number;
}

static int error_at(size_t i) {
  return KW_ERR_BEFORE_FIRST_ + 1 + (int)i;
}

int kw_error_find(const char *code) {
  for (size_t i = 0; i < KW_LENGTH(errors); i++) {
    if (strcmp(errors[i].code, code) == 0) return error_at(i);
  }
  return KW_OK;
}

/* The general error of each gRPC status. */
static const int general[] = {[1] = KW_ERR_CANCELLED,           [2] = KW_ERR_UNKNOWN,
                              [3] = KW_ERR_INVALID_ARGUMENT,    [4] = KW_ERR_DEADLINE_EXCEEDED,
                              [5] = KW_ERR_NOT_FOUND,           [6] = KW_ERR_ALREADY_EXISTS,
                              [7] = KW_ERR_PERMISSION_DENIED,   [8] = KW_ERR_RESOURCE_EXHAUSTED,
                              [9] = KW_ERR_FAILED_PRECONDITION, [10] = KW_ERR_ABORTED,
                              [11] = KW_ERR_OUT_OF_RANGE,       [12] = KW_ERR_UNIMPLEMENTED,
                              [13] = KW_ERR_INTERNAL,           [14] = KW_ERR_UNAVAILABLE,
                              [15] = KW_ERR_DATA_LOSS,          [16] = KW_ERR_UNAUTHENTICATED};

/* True if a text is that of an error, perhaps followed by a cause: "TEXT: CAUSE". */
static bool is_text_of(const char *own, kw_slice text) {
  size_t len = strlen(own);
  if (text.len < len || memcmp(text.data, own, len) != 0) return false;
  return text.len == len || (text.len > len + 1 && memcmp(text.data + len, ": ", 2) == 0);
}

int kw_error_recognize(int grpc_status, kw_slice text) {
  for (size_t i = 0; i < KW_LENGTH(errors); i++) {
    if (is_text_of(errors[i].text, text)) return error_at(i);
  }
  bool is_known = grpc_status > 0 && (size_t)grpc_status < KW_LENGTH(general);
  return is_known ? general[grpc_status] : KW_ERR_UNKNOWN;
}
