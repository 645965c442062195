/* SPDX-License-Identifier: MIT
 *
 * committer: the commit thread of a durable store. It writes commit groups to the database, one after the other.
 *
 *   gathering group   the caller's: changes are added to it
 *        | submit, while the thread is idle
 *   submitted group   the thread's: it is written and flushed, then the bell rings
 *        | take
 *   outcome           the caller learns it, and the database's reader moves on
 *
 * There is one submitted group at most; meanwhile the next one gathers. The thread only writes, copies and rings the
 * bell: everything else happens in the caller's thread.
 */
#ifndef KW_STORE_COMMITTER_H
#define KW_STORE_COMMITTER_H

#include "base/bell.h"
#include "store/commit_group.h"
#include "store/database.h"

typedef struct kw_committer kw_committer;

/* Starts a commit thread for a database, which has to stay open until the committer is closed. Returns KW_OK,
 * KW_ERR_NO_MEMORY, or KW_ERR_STORAGE if no thread can be started. */
int kw_committer_start(kw_database *database, kw_committer **committer);

/* Waits until the submitted group is written, then ends the thread and frees the committer. In a child process, which
 * has inherited no thread, it only frees memory. */
void kw_committer_close(kw_committer *committer);

/* Sets the bell that rings after each group. The committer takes the caller's reference. */
void kw_committer_set_bell(kw_committer *committer, kw_bell bell);

/* Returns the gathering group. The pointer is good until the committer is closed. */
kw_commit_group *kw_committer_group(kw_committer *committer);

/* True if a group can be submitted: no group is being written, and none waits to be taken. */
bool kw_committer_is_idle(const kw_committer *committer);

/* Hands the gathering group, which becomes durable with `meta`, to the idle thread. Another group gathers from now
 * on. With `defragment`, the thread copies the database to a file without gaps once the group is written; this file
 * takes the database's place when the group is taken. */
void kw_committer_submit(kw_committer *committer, const kw_commit_meta *meta, bool defragment);

/* Takes the submitted group if it is done; with `wait`, waits until it is. Returns false if there is none. *meta
 * becomes the group's, and *rc its outcome: KW_OK; KW_ERR_NO_SPACE or KW_ERR_NO_MEMORY if the group was not written
 * (after KW_ERR_NO_SPACE some of its removals may be); KW_ERR_STORAGE if it is unknown what was written. The
 * database's reader has moved on: what it read before is no longer valid. */
bool kw_committer_take(kw_committer *committer, bool wait, kw_commit_meta *meta, int *rc);

/* Called after a failure was taken, before the next submit. Forgets the failed group and the gathering one, but keeps
 * the removals of both for the next group. A removal may be repeated, and may happen later: removals are in an order
 * in which a tombstone outlasts the records that it hides. Returns KW_ERR_NO_MEMORY if removals were lost. */
int kw_committer_forget(kw_committer *committer);

/* Returns the outcome of the last defragmentation whose group was written and taken: KW_OK, KW_ERR_NO_SPACE,
 * KW_ERR_NO_MEMORY or KW_ERR_STORAGE; KW_OK if there was none. After each of them the data are complete. */
int kw_committer_defragmented(const kw_committer *committer);

#ifdef KW_PROBE
/* While `hold` is true, the thread begins no group. */
void kw_committer_hold(kw_committer *committer, bool hold);

/* Makes the next group fail with `rc` instead of being written. KW_OK: it is written. */
void kw_committer_fail_next(kw_committer *committer, int rc);
#endif

#endif
