/* SPDX-License-Identifier: MIT */
#include "rpc/long_answer.h"

#include "codec/grpc.h"

#define QUIET_MS 10 /* time without requests, after which a turn makes more than one page */

bool kw_long_answer_begin(const kw_server *server, kw_long_answer *answer, int64_t revision) {
  kw_chain *out = &answer->stream->out;
  size_t head = kw_service_header_size(server, revision);
  answer->before = out->len;
  answer->stream->begun++;
  answer->prefix = kw_chain_reserve(out, KW_GRPC_PREFIX + head);
  if (answer->prefix == NULL) return false;
  kw_service_put_header(server, revision, answer->prefix + KW_GRPC_PREFIX);
  kw_chain_commit(out, KW_GRPC_PREFIX + head);
  return true;
}

void kw_long_answer_send(kw_server *server, const kw_long_answer *answer, uint64_t ticket) {
  kw_stream *stream = answer->stream;
  size_t len = stream->out.len - answer->before - KW_GRPC_PREFIX;
  if (len > KW_MAX_ANSWER) {
    kw_stream_forget(stream);
    kw_service_refuse_size(stream, len);
    return;
  }
  kw_grpc_put_prefix(answer->prefix, len);
  kw_service_send_parts(server, stream, ticket);
}

bool kw_long_answer_charge(kw_long_answer *answer, size_t size) {
  kw_account *account = kw_session_account(answer->stream->session);
  bool ok = size <= answer->charged || kw_account_ask(account, size - answer->charged);
  kw_account_resize(account, answer->charged, size);
  answer->charged = size;
  return ok;
}

void kw_long_answer_step(kw_server *server) {
  bool is_quiet = server->now - server->asked_at > QUIET_MS;
  kw_work work = {.left = is_quiet ? KW_WORK_TURN : KW_PAGE_VISITS};
  while (kw_work_is_left(&work) && !kw_link_is_alone(&server->long_answers)) {
    kw_long_answer *answer = KW_CONTAINER_OF(server->long_answers.next, kw_long_answer, link);
    kw_stream *stream = answer->stream;
    kw_work page = {.left = KW_PAGE_VISITS};
    kw_link_remove(&answer->link);
    kw_link_add(&server->long_answers, &answer->link);
    kw_arena_reset(&server->arena);
    answer->step(server, answer, &page);
    work.left -= 1 + KW_PAGE_VISITS - page.left;
    kw_server_touch(stream);
  }
}
