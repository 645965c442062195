/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "disk/recovery.h"

#include "model/error.h"

/* Writes a sentence for an error that has none yet. */
static int refuse(const kw_database *db, int rc, const char *why, char *text) {
  if (rc == KW_ERR_NO_MEMORY) return rc;
  kw_database_refuse(text, kw_database_path(db), why);
  return rc;
}

int kw_recovery_replay(kw_database *db, bool *is_missing, char text[KW_REASON_ROOM]) {
  kw_database_identity identity = kw_database_get_identity(db);
  kw_journal_recovered found;
  char why[KW_JOURNAL_WHY_ROOM];
  int64_t applied = kw_database_get_meta(db).sequence;
  if (applied < 0 || applied > KW_MAX_REVISION || identity.epoch > KW_MAX_REVISION)
    return refuse(db, KW_ERR_CORRUPT, "the numbers in its database are damaged", text);
  kw_journal_expected expected = {.store_id = identity.id,
                                  .epoch = identity.epoch,
                                  .applied = applied,
                                  .is_closed = !identity.has_journal};
  int rc = kw_journal_recover(kw_database_path(db), &expected, &found, why);
  if (rc != KW_OK) return refuse(db, rc, why, text);
  *is_missing = identity.has_journal && !found.has_files;
  if (found.groups > 0) rc = kw_database_recover(db, &found.group);
  kw_journal_recovered_drop(&found);
  if (rc == KW_ERR_NO_SPACE) return refuse(db, rc, strerror(ENOSPC), text);
  return rc == KW_OK ? rc : refuse(db, rc, "its journal cannot be written to its database", text);
}

static bool is_in_place(void *ctx) {
  return kw_database_is_in_place(ctx);
}

int kw_recovery_begin(kw_database *db, int64_t segment_bytes, kw_journal **result) {
  const kw_commit_group nothing = {0};
  kw_database_identity identity = kw_database_get_identity(db);
  kw_journal *journal;
  *result = NULL;
  if (!kw_database_is_in_place(db)) return KW_ERR_NO_SPACE;
  if (kw_database_reserve(db, &nothing, 0) == KW_ERR_NO_SPACE)
    kw_journal_remove(kw_database_path(db)); /* the database has all its groups */
  identity.epoch++;
  identity.has_journal = true;
  kw_journal_options options = {.store_id = identity.id,
                                .epoch = identity.epoch,
                                .segment_bytes = segment_bytes,
                                .is_in_place = is_in_place,
                                .ctx = db};
  int rc = kw_journal_open(kw_database_path(db), &options, &journal);
  if (rc != KW_OK) return rc == KW_ERR_STORAGE ? KW_ERR_NO_SPACE : rc;
  rc = kw_database_set_identity(db, identity);
  if (rc == KW_OK) {
    *result = journal;
  } else {
    kw_journal_close(journal);
  }
  return rc;
}
