/* SPDX-License-Identifier: MIT */
#define kw_committer_close usual_close
#include "disk/committer.h"

#include "disk/worker.h"

static void append_or_fail(void *ctx);

#define kw_worker_start(worker, has_thread, job, ctx)                                              \
  kw_worker_start(worker, has_thread, job##_or_fail, ctx)
#include "disk/committer.c"
#undef kw_committer_close

#include "probe/disk.h"

void kw_committer_close(kw_committer *committer);

/* What fails, fails before the thread looks at anything else. */
static void append_or_fail(void *ctx) {
  kw_committer *c = ctx;
  int rc = kw_checkpointer_take_failure(c->checkpointer);
  if (rc == KW_OK) {
    append(ctx);
    return;
  }
  c->is_redirected = false;
  c->append_rc = rc;
  c->append_fault = (kw_fault){KW_FAULT_DATABASE, kw_error_take_number()};
}

/* Ends a hold, which the threads would never leave. */
void kw_committer_close(kw_committer *c) {
  if (!kw_database_is_inherited(c->database) && is_complete(c)) kw_committer_hold(c, false);
  usual_close(c);
}

void kw_committer_hold(kw_committer *c, bool hold) {
  kw_worker_hold(&c->worker, hold);
  kw_committer_hold_checkpoints(c, hold);
}

void kw_committer_hold_checkpoints(kw_committer *c, bool hold) {
  kw_checkpointer_hold(c->checkpointer, hold);
}

void kw_committer_fail_next(kw_committer *c, int rc) {
  kw_checkpointer_fail_next(c->checkpointer, rc);
}

const char *kw_committer_check(const kw_committer *c) {
  bool is_idle = kw_checkpointer_is_idle(c->checkpointer);
  if (c->stage == WRITING && is_idle) return "a group is in the database, and no thread writes it";
  if (c->stage == WAITING && is_idle) return "a group waits for nothing";
  if (c->stage == APPENDING && kw_worker_is_idle(&c->worker))
    return "a group is in the journal, and no thread appends it";
  return kw_checkpointer_check(c->checkpointer);
}
