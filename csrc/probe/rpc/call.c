/* SPDX-License-Identifier: MIT */
#include "rpc/call.c"

#include "probe/checks.h"

static bool is_method_of_lua(const kw_method *method) {
  return method == &intercepted || (method != NULL && method->on_open == on_open);
}

size_t kw_call_charge(const kw_stream *stream) {
  const kw_call *c = is_method_of_lua(stream->method) ? stream->owner : stream->proceeded_call;
  if (stream->exchange != NULL) c = stream->exchange->owner;
  return c == NULL ? 0 : CALL_BYTES + c->metadata->len + c->messages.charge + c->gathered;
}
