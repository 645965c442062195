/* SPDX-License-Identifier: MIT */
#include "model/error.h"

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

int kw_error_find(const char *code) {
  for (size_t i = 0; i < KW_LENGTH(errors); i++) {
    if (strcmp(errors[i].code, code) == 0) return KW_ERR_BEFORE_FIRST_ + 1 + (int)i;
  }
  return KW_OK;
}
