/* SPDX-License-Identifier: MIT
 *
 * lease_service: etcdserverpb.Lease.
 */
#include "model/error.h"
#include "rpc/lease_answer.h"
#include "rpc/write_queue.h"

/* Returns the current time, rounded up to whole milliseconds, so that a lease granted from then on does not end too
 * early. */
static int64_t later_than_now(const kw_server *server) {
  return kw_server_time(server) + (server->options.clock == NULL);
}

static void answer(kw_server *server, kw_stream *stream, const kw_message *message,
                   const void *record) {
  int64_t revision =
      stream->is_unary ? kw_store_applied(server->store) : kw_store_revision(server->store);
  kw_service_answer(server, stream, revision, message, record);
}

/* Commits a change of a lease and answers it; or answers with the error of the change. */
static void commit(kw_server *server, kw_stream *stream, int rc, const kw_message *message,
                   const void *record) {
  if (rc != KW_OK) {
    kw_service_fail_durable(server, stream, rc);
    return;
  }
  kw_store_commit(server->store);
  answer(server, stream, message, record);
}

static void on_grant(kw_server *server, kw_stream *stream, const void *request) {
  kw_lease_message lease = *(const kw_lease_message *)request;
  if (!kw_service_make_room(stream)) return;
  int rc = kw_store_grant(server->store, later_than_now(server), &lease.id, &lease.ttl);
  commit(server, stream, rc, &kw_msg_lease_grant_response, &lease);
}

/* The header of the answer has the revision after the deletions. */
static void finish_revoke(kw_server *server, kw_stream *stream, const kw_write_result *result,
                          int rc) {
  (void)result;
  commit(server, stream, rc, &kw_msg_lease_revoke_response, NULL);
}

static void on_revoke(kw_server *server, kw_stream *stream, const void *request) {
  int64_t id = ((const kw_lease_message *)request)->id;
  if (!kw_service_make_room(stream)) return;
  int rc = kw_store_revoke_within(server->store, id, &server->work);
  if (rc == KW_UNFINISHED) {
    kw_write_queue_begin_revoke(server, stream, id, finish_revoke);
  } else {
    finish_revoke(server, stream, NULL, rc);
  }
}

static void on_keep_alive(kw_server *server, kw_stream *stream, const void *request) {
  kw_lease_message lease = {.id = ((const kw_lease_message *)request)->id};
  if (!kw_service_make_room(stream)) return;
  kw_store_keepalive(server->store, later_than_now(server), lease.id, &lease.ttl);
  answer(server, stream, &kw_msg_lease_keep_alive_response, &lease);
}

static void on_keep_alive_end(kw_server *server, kw_stream *stream) {
  (void)server;
  kw_stream_finish(stream, KW_GRPC_OK, (kw_slice){0});
}

static void on_time_to_live(kw_server *server, kw_stream *stream, const void *request) {
  const kw_lease_message *asked = request;
  kw_lease_info info;
  kw_store_time_to_live(server->store, kw_server_time(server), asked->id, &info);
  if (asked->wants_keys && info.ttl >= 0) {
    kw_lease_answer_keys(server, stream, &info);
    return;
  }
  kw_lease_message lease = {.id = info.id, .ttl = info.ttl, .granted_ttl = info.granted_ttl};
  answer(server, stream, &kw_msg_lease_time_to_live_response, &lease);
}

static void on_leases(kw_server *server, kw_stream *stream, const void *request) {
  (void)request;
  kw_lease_answer_leases(server, stream);
}

const kw_method kw_lease_methods[] = {
    KW_WAITING_METHOD("/etcdserverpb.Lease/LeaseGrant", lease_grant_request, on_grant),
    KW_WAITING_METHOD("/etcdserverpb.Lease/LeaseRevoke", lease_revoke_request, on_revoke),
    {.path = "/etcdserverpb.Lease/LeaseTimeToLive",
     .request = &kw_msg_lease_time_to_live_request,
     .is_unary = true,
     .on_request = on_time_to_live,
     .on_timeout = kw_service_abandon,
     .on_close = kw_lease_answer_close},
    {.path = "/etcdserverpb.Lease/LeaseLeases",
     .request = &kw_msg_lease_leases_request,
     .is_unary = true,
     .on_request = on_leases,
     .on_timeout = kw_service_abandon,
     .on_close = kw_lease_answer_close},
    {.path = "/etcdserverpb.Lease/LeaseKeepAlive",
     .request = &kw_msg_lease_keep_alive_request,
     .on_request = on_keep_alive,
     .on_half_close = on_keep_alive_end,
     .on_drain = kw_service_stop},
    {0},
};
