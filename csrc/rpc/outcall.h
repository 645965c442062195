/* SPDX-License-Identifier: MIT
 *
 * outcall: one call of a client, from its beginning until its END was taken. For rpc/client.c only.
 *
 * Messages wait in a queue until they are taken; those of a call with hooks are passed to the hooks at once. The call
 * enters its client's list of ready calls once, when something can be taken, and again only after it was found empty.
 */
#ifndef KW_RPC_OUTCALL_H
#define KW_RPC_OUTCALL_H

#include "rpc/client.h"
#include "rpc/message_queue.h"

typedef struct kw_outcall {
  uint64_t number;
  kw_stream *stream;   /* NULL: the call has ended */
  kw_call_hooks hooks; /* without functions: messages are queued */
  kw_message_queue messages;
  size_t max_untaken;   /* bytes in the queue at which the stream is paused; not of a unary call */
  kw_link *ready_calls; /* the client's list */
  kw_link ready;        /* membership in that list */
  kw_blob *text;        /* text of the status, or NULL */
  uint8_t status;
  bool is_unary : 1;
  bool is_refused : 1; /* the server has not processed the call, and never will */
  bool is_armed : 1;   /* becomes ready as soon as something can be taken */
  bool wants_room : 1; /* becomes ready as soon as the session can take more data */
  bool is_paused : 1;  /* too many bytes were not taken */
} kw_outcall;

/* Makes a call without a stream: the caller sets call->stream. The hooks, which may be NULL, are copied. Returns NULL
 * if memory is short. */
kw_outcall *kw_outcall_new(uint64_t number, bool is_unary, const kw_call_hooks *hooks,
                           size_t max_untaken, kw_link *ready_calls);

/* Frees a call. Calls on_end of its hooks, unless that was called before. */
void kw_outcall_free(kw_outcall *call);

/* Queues a received message, or passes it to the hooks. A second message of a unary call, or a lack of memory, fails
 * the call. */
void kw_outcall_receive(kw_outcall *call, kw_slice message);

/* Ends a call with the received status, and detaches it from its stream. Takes one more reference to the text, which
 * may be NULL. Messages that were received before can still be taken. */
void kw_outcall_end(kw_outcall *call, int status, kw_blob *text, bool is_refused);

/* Ends a call like kw_outcall_end, with a status of our own. The text is copied. */
void kw_outcall_abort(kw_outcall *call, int status, const char *text, bool is_refused);

/* Aborts a call that has not ended, resets its stream, and drops its queued messages. */
void kw_outcall_fail(kw_outcall *call, int status, const char *text);

/* Notes that the session can take more data of the call: a call that waits for room becomes ready. */
void kw_outcall_sent(kw_outcall *call);

/* Takes the next message or the END; the call has to be freed after its END. Returns NOTHING if there is neither, and
 * then arms the call. May resume the stream. */
kw_return kw_outcall_take(kw_outcall *call);

#endif
