/* SPDX-License-Identifier: MIT */
#include "rpc/range_answer.c"

#include "probe/checks.h"

size_t kw_range_answer_charge(const kw_stream *stream) {
  const kw_method *method = stream->method;
  bool is_range = method != NULL && method->on_close == kw_range_answer_close;
  return is_range && stream->owner != NULL ? ((range_answer *)stream->owner)->base.charged : 0;
}
