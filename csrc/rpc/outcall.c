/* SPDX-License-Identifier: MIT */
#include "rpc/outcall.h"

#include "base/mem.h"

kw_outcall *kw_outcall_new(uint64_t number, bool is_unary, const kw_call_hooks *hooks,
                           size_t max_untaken, kw_link *ready_calls) {
  kw_outcall *call = kw_alloc_zeroed(sizeof *call);
  if (call == NULL) return NULL;
  call->number = number;
  call->is_unary = is_unary;
  call->is_armed = true;
  call->max_untaken = max_untaken;
  call->ready_calls = ready_calls;
  if (hooks != NULL) call->hooks = *hooks;
  kw_message_queue_init(&call->messages, NULL);
  kw_link_init(&call->ready);
  return call;
}

static void end_hooks(kw_outcall *call) {
  kw_call_hooks hooks = call->hooks;
  call->hooks = (kw_call_hooks){0};
  if (hooks.on_end != NULL) hooks.on_end(hooks.ctx);
}

void kw_outcall_free(kw_outcall *call) {
  end_hooks(call);
  kw_message_queue_clear(&call->messages);
  kw_link_remove(&call->ready);
  if (call->text != NULL) kw_blob_release(call->text);
  kw_free(call);
}

static void enter_ready(kw_outcall *call) {
  if (kw_link_is_alone(&call->ready)) kw_link_add(call->ready_calls, &call->ready);
}

/* True if Lua can take something. The message of a unary call waits for the END. */
static bool has_something(const kw_outcall *call) {
  if (call->stream == NULL) return true;
  return !call->is_unary && !kw_message_queue_is_empty(&call->messages);
}

static void make_ready(kw_outcall *call) {
  if (!call->is_armed || !has_something(call) || call->hooks.on_message != NULL) return;
  call->is_armed = false;
  enter_ready(call);
}

/* The reference to the text passes to the call. */
static void end(kw_outcall *call, int status, kw_blob *text, bool is_refused) {
  call->stream->owner = NULL;
  call->stream = NULL;
  call->status = (uint8_t)status;
  call->text = text;
  call->is_refused = is_refused;
  end_hooks(call);
  make_ready(call);
}

void kw_outcall_end(kw_outcall *call, int status, kw_blob *text, bool is_refused) {
  end(call, status, text == NULL ? NULL : kw_blob_retain(text), is_refused);
}

void kw_outcall_abort(kw_outcall *call, int status, const char *text, bool is_refused) {
  end(call, status, kw_blob_copy(kw_slice_of(text, strlen(text))), is_refused);
}

void kw_outcall_fail(kw_outcall *call, int status, const char *text) {
  kw_message_queue_clear(&call->messages);
  call->stream->owner = NULL; /* the stream reports nothing more */
  kw_stream_reset(call->stream, KW_RESET_CANCEL);
  kw_outcall_abort(call, status, text, false);
}

void kw_outcall_receive(kw_outcall *call, kw_slice message) {
  if (call->hooks.on_message != NULL) {
    call->hooks.on_message(call->hooks.ctx, message);
  } else if (call->is_unary && !kw_message_queue_is_empty(&call->messages)) {
    kw_outcall_fail(call, KW_GRPC_INTERNAL, "keywatch: more than one message in a unary answer");
  } else if (!kw_message_queue_add(&call->messages, message)) {
    kw_outcall_fail(call, KW_GRPC_RESOURCE_EXHAUSTED, "keywatch: out of memory");
  } else {
    if (call->messages.charge > call->max_untaken && !call->is_unary) {
      call->is_paused = true;
      kw_stream_pause(call->stream);
    }
    make_ready(call);
  }
}

void kw_outcall_sent(kw_outcall *call) {
  if (!call->wants_room) return;
  call->wants_room = false;
  enter_ready(call);
}

static kw_return take_message(kw_outcall *call) {
  kw_blob *bytes = kw_message_queue_take(&call->messages);
  if (call->is_paused && call->messages.charge <= call->max_untaken / 2) {
    call->is_paused = false;
    if (call->stream != NULL) kw_stream_resume(call->stream);
  }
  return (kw_return){.kind = KW_RETURN_MESSAGE, .bytes = bytes};
}

static kw_return take_end(kw_outcall *call) {
  kw_blob *text = call->text;
  call->text = NULL;
  return (kw_return){
      .kind = KW_RETURN_END, .status = call->status, .is_refused = call->is_refused, .bytes = text};
}

kw_return kw_outcall_take(kw_outcall *call) {
  bool is_due = !call->is_unary || call->stream == NULL;
  if (is_due && !kw_message_queue_is_empty(&call->messages)) return take_message(call);
  if (call->stream == NULL) return take_end(call);
  call->is_armed = true;
  return (kw_return){.kind = KW_RETURN_NOTHING};
}
