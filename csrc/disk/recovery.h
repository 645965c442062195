/* SPDX-License-Identifier: MIT
 *
 * recovery: when a store is opened, brings its database up to date from the journal, and opens the journal for a new
 * epoch.
 *
 *   replay   read the groups of the journal that the database lacks, and write them to the database, in one
 *            transaction
 *   begin    before the first append: open the journal for the next epoch, with a first segment, and write that epoch
 *            to the database: from then on frames of earlier epochs are ignored, and the journal must exist. A store
 *            that is only read does not do this
 *
 * After a crash between two of these steps they are repeated: groups that the database has are skipped.
 */
#ifndef KW_DISK_RECOVERY_H
#define KW_DISK_RECOVERY_H

#include "disk/database.h"
#include "disk/journal.h"

/* Brings the database up to date from its journal. Sets *is_missing to true if there is no journal although the store
 * was not closed: writes may be lost. Returns KW_OK; KW_ERR_NO_MEMORY; or KW_ERR_CORRUPT, KW_ERR_STORAGE or
 * KW_ERR_NO_SPACE, with a sentence in `text`. */
int kw_recovery_replay(kw_database *database, bool *is_missing, char text[KW_REASON_ROOM]);

/* Opens the journal. `segment_bytes` is the size of new segments. May run in another thread, like
 * kw_database_set_identity. Returns KW_OK; KW_ERR_NO_MEMORY; KW_ERR_NO_SPACE if there is no space, the journal's files
 * cannot be opened now, or the directory is not in place; or KW_ERR_STORAGE if the database cannot be written. After an
 * error *journal is NULL. */
int kw_recovery_begin(kw_database *database, int64_t segment_bytes, kw_journal **journal);

#endif
