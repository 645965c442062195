/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdatomic.h>

#include "model/error.h"
#include "probe/disk.h"

static kw_checkpointer *_Atomic failing; /* whose next group fails */
static atomic_int next_failure;

int kw_checkpointer_take_failure(kw_checkpointer *c) {
  if (failing != c) return KW_OK;
  int rc = atomic_exchange(&next_failure, KW_OK);
  return rc == KW_ERR_STORAGE ? kw_error_storage(EIO) : rc;
}

void kw_checkpointer_fail_next(kw_checkpointer *c, int rc) {
  failing = c;
  next_failure = rc;
}

static int write_or_fail(kw_checkpointer *c, kw_database *database, const kw_commit_group *group) {
  int rc = kw_checkpointer_take_failure(c);
  return rc == KW_OK ? kw_database_write(database, group) : rc;
}

#define kw_database_write(database, group) write_or_fail(c, database, group)
#include "disk/checkpointer.c"

void kw_checkpointer_hold(kw_checkpointer *c, bool hold) {
  kw_worker_hold(&c->worker, hold);
}

const char *kw_checkpointer_check(const kw_checkpointer *c) {
  bool is_idle = kw_checkpointer_is_idle(c);
  if (is_idle && has_groups(&c->applying) && c->repeats == KW_OK && !c->has_failed)
    return "groups are being applied, and no thread applies them";
  if (c->repeats != KW_OK && !has_groups(&c->applying))
    return "a checkpoint of nothing is repeated";
  if (has_groups(&c->pending) && c->pending.group.meta.sequence <= c->applied.sequence)
    return "a pending group is in the database";
  return NULL;
}
