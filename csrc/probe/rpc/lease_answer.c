/* SPDX-License-Identifier: MIT */
#include "rpc/lease_answer.c"

#include "probe/checks.h"

size_t kw_lease_answer_charge(const kw_stream *stream) {
  const kw_method *method = stream->method;
  bool is_list = method != NULL && method->on_close == kw_lease_answer_close;
  return is_list && stream->owner != NULL ? ((lease_answer *)stream->owner)->base.charged : 0;
}
