/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/service.h"

#include "codec/wire.h"
#include "model/error.h"
#include "rpc/notes.h"

#define SMALL_ANSWER 128 /* bytes of a header, an id and a number, with the prefix */

enum { HEADER = 1, HEADER_REVISION = 3, HEADER_RAFT_TERM = 4 };

void kw_server_touch(kw_stream *stream) {
  kw_peer *peer = kw_peer_of(stream);
  if (peer->server->takes_notes) kw_notes_answered(peer, stream);
  if (kw_driver_is_set(&peer->driver))
    kw_driver_update(&peer->driver, kw_session_deadline(peer->session));
}

bool kw_server_is_busy(const kw_server *server) {
  return server->store != NULL && server->options.is_busy != NULL && *server->options.is_busy;
}

kw_slice kw_service_text(int rc) {
  const char *text = kw_error_describe(rc)->text;
  return kw_slice_of(text, strlen(text));
}

/* If the storage has failed, the text includes the reason. */
void kw_service_fail(kw_stream *stream, int rc) {
  const kw_store *store = rc == KW_ERR_STORAGE ? kw_peer_of(stream)->server->store : NULL;
  const char *failure = store == NULL ? NULL : kw_store_failure(store);
  kw_slice text = failure == NULL ? kw_service_text(rc) : kw_slice_text(failure);
  kw_stream_finish(stream, kw_error_describe(rc)->grpc_status, text);
}

void kw_service_stop(kw_server *server, kw_stream *stream) {
  (void)server;
  if (!stream->is_unary) kw_service_fail(stream, KW_ERR_STOPPED);
}

void kw_service_refuse_size(kw_stream *stream, size_t len) {
  char text[96];
  int n = snprintf(text, sizeof text, "grpc: trying to send message larger than max (%zu vs. %d)",
                   len, KW_MAX_ANSWER);
  kw_stream_finish(stream, KW_GRPC_RESOURCE_EXHAUSTED, kw_slice_of(text, (size_t)n));
}

bool kw_service_may_answer(kw_stream *stream, size_t len, size_t held) {
  return kw_account_ask(kw_session_account(stream->session), held) &&
         kw_stream_has_room(stream, len);
}

static size_t header_len(const kw_server *server, int64_t revision) {
  return server->n_ids + kw_wire_number_size((uint64_t)revision) +
         kw_wire_number_size(server->options.raft_term);
}

size_t kw_service_header_size(const kw_server *server, int64_t revision) {
  size_t len = header_len(server, revision);
  return 1 + kw_wire_varint_size(len) + len;
}

uint8_t *kw_service_put_header(const kw_server *server, int64_t revision, uint8_t *to) {
  *to++ = KW_WIRE_TAG(HEADER, KW_WIRE_BYTES);
  to = kw_wire_put_varint(to, header_len(server, revision));
  memcpy(to, server->ids, server->n_ids);
  to = kw_wire_put_number(to + server->n_ids, HEADER_REVISION, (uint64_t)revision);
  return kw_wire_put_number(to, HEADER_RAFT_TERM, server->options.raft_term);
}

bool kw_service_begin(kw_server *server, kw_stream *stream, int64_t revision, size_t rest,
                      kw_answer_room *room) {
  *room = (kw_answer_room){stream, NULL, kw_service_header_size(server, revision) + rest};
  room->to = kw_stream_begin(stream, room->len);
  if (room->to == NULL) return false;
  room->to = kw_service_put_header(server, revision, room->to);
  return true;
}

void kw_service_send(kw_answer_room *room) {
  kw_stream_commit(room->stream, room->len);
  if (room->stream->is_unary) kw_stream_finish(room->stream, KW_GRPC_OK, (kw_slice){0});
}

/* {====== Answers that wait until they are durable ====== */

/* Ends a call whose ticket is settled: with its answer, with the error of the commit group, or with the call's own
 * error. */
static void finish(const kw_server *server, kw_stream *stream) {
  int rc = kw_store_outcome(server->store, stream->ticket);
  if (rc == KW_OK) rc = stream->failure;
  if (rc == KW_OK) {
    kw_stream_sent(stream);
    kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
  } else {
    kw_stream_forget(stream);
    kw_service_fail(stream, rc);
  }
}

/* Ends a call, with its answer or with `failure`, as soon as the ticket is settled. */
static void finish_durable(kw_server *server, kw_stream *stream, uint64_t ticket, int failure) {
  stream->failure = failure;
  stream->ticket = ticket;
  if (kw_store_is_settled(server->store, stream->ticket)) {
    finish(server, stream);
  } else {
    kw_link_add(&server->undurable, &stream->undurable_link);
  }
}

void kw_service_send_durable(kw_server *server, kw_answer_room *room) {
  kw_chain_commit(&room->stream->out, KW_GRPC_PREFIX + room->len);
  finish_durable(server, room->stream, kw_store_ticket(server->store), KW_OK);
}

void kw_service_send_parts(kw_server *server, kw_stream *stream, uint64_t ticket) {
  finish_durable(server, stream, ticket, KW_OK);
}

void kw_service_fail_durable(kw_server *server, kw_stream *stream, int rc) {
  finish_durable(server, stream, kw_store_ticket(server->store), rc);
}

void kw_service_step(kw_server *server) {
  while (!kw_link_is_alone(&server->undurable)) {
    kw_stream *stream = KW_CONTAINER_OF(server->undurable.next, kw_stream, undurable_link);
    if (!kw_store_is_settled(server->store, stream->ticket)) return;
    kw_link_remove(&stream->undurable_link);
    finish(server, stream);
    kw_server_touch(stream);
  }
}

void kw_service_abandon(kw_server *server, kw_stream *stream) {
  const kw_method *method = stream->method;
  if (method->on_close != NULL) method->on_close(server, stream);
  kw_link_remove(&stream->undurable_link);
  kw_stream_forget(stream);
}

/* }====== */

bool kw_service_make_room(kw_stream *stream) {
  if (kw_chain_reserve(&stream->out, SMALL_ANSWER) != NULL) return true;
  kw_service_fail(stream, KW_ERR_NO_MEMORY);
  return false;
}

bool kw_service_answer(kw_server *server, kw_stream *stream, int64_t revision,
                       const kw_message *message, const void *record) {
  kw_answer_room room;
  size_t rest = kw_message_rest_size(message, record);
  if (rest > SMALL_ANSWER && stream->is_unary && !kw_service_may_answer(stream, rest, rest)) {
    kw_service_fail(stream, KW_ERR_TOO_MANY_REQUESTS);
    return true;
  }
  if (!kw_service_begin(server, stream, revision, rest, &room)) {
    kw_service_fail(stream, KW_ERR_NO_MEMORY);
    return false;
  }
  kw_message_put_rest(message, record, room.to);
  if (stream->is_unary) {
    kw_service_send_durable(server, &room);
  } else {
    kw_service_send(&room);
  }
  return true;
}
