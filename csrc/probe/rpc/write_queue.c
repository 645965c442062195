/* SPDX-License-Identifier: MIT */
#include "rpc/write_queue.c"

#include "probe/checks.h"

size_t kw_write_queue_charge(const kw_stream *stream) {
  const kw_method *method = stream->method;
  bool has_job = method != NULL && method->waits && stream->owner != NULL;
  return has_job ? ((kw_write_job *)stream->owner)->charged : 0;
}
