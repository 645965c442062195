/* SPDX-License-Identifier: MIT
 *
 * recovery: brings the database of a store that is being opened up to its journal, and opens the journal anew.
 *
 *   replay          read the journal beyond the sequence that the database has, and write that to the database, in one
 *                   transaction
 *   the caller loads the records: a store that is damaged, and a store without a journal, are not written
 *   begin           write the next epoch to the database: from now on the frames in the journal are old; open the
 *                   journal for that epoch
 *
 * A crash between two of these steps repeats them: groups that the database has are skipped.
 */
#ifndef KW_STORE_RECOVERY_H
#define KW_STORE_RECOVERY_H

#include "store/database.h"
#include "store/journal.h"

/* Brings the database up to its journal. Returns KW_OK, KW_ERR_NO_MEMORY; or KW_ERR_CORRUPT, KW_ERR_STORAGE or
 * KW_ERR_NO_SPACE, with a sentence in `text`. */
int kw_recovery_replay(kw_database *database, char text[KW_REASON_ROOM]);

/* Opens the journal. `segment_bytes` is the size of the largest segments. *journal becomes NULL where the disk has no
 * room for a journal. Returns KW_OK, KW_ERR_NO_MEMORY; or KW_ERR_STORAGE, with a sentence in `text`. */
int kw_recovery_begin(kw_database *database, int64_t segment_bytes, kw_journal **journal,
                      char text[KW_REASON_ROOM]);

#endif
