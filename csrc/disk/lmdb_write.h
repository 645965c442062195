/* SPDX-License-Identifier: MIT
 *
 * lmdb_write: writes a commit group as one LMDB transaction, and meets a full disk before the commit, not in it.
 *
 * The records of a large group are written in parts, each a transaction of its own, before the transaction that has
 * the rest of the group and its numbers: LMDB keeps the memory of its largest transaction for ever. Until that last
 * transaction, the file is marked as unfinished, and its records beyond the durable revision do not count. They are
 * removed if a part fails; after a crash, by kw_lmdb_remove_unfinished.
 *
 * LMDB appends pages to the file, or uses free ones again. All pages that a group may need are allocated before it is
 * written. On a full disk free pages may do. The file is grown ahead of need, and part of the reserve is left to what
 * frees space: puts leave pages to deletes, and both leave pages to removals, so that a full disk can be freed by
 * compaction.
 */
#ifndef KW_DISK_LMDB_WRITE_H
#define KW_DISK_LMDB_WRITE_H

#include "disk/commit_group.h"
#include "disk/lmdb_file.h"

/* Writes a group; see kw_database_write for the results. `seen` is the transaction that the database's reader sees:
 * pages that were freed later are not free yet. `is_durable`: the group is in the journal, its room was reserved, and
 * it leaves no pages to others. */
int kw_lmdb_write(const kw_lmdb_file *file, size_t seen, const kw_commit_group *group,
                  bool is_durable);

/* Returns the bytes that a group may need at most, without what every transaction needs. `txn` sees the tables. */
size_t kw_lmdb_need(const kw_lmdb_file *file, MDB_txn *txn, const kw_commit_group *group);

/* Allocates room for groups that may need `need` bytes, and that are going to be written together. `group` is one of
 * them: it leaves pages to what frees space, see above. Returns 0, an errno, or MDB_MAP_FULL. Any thread, beside
 * kw_lmdb_write. */
int kw_lmdb_reserve(const kw_lmdb_file *file, const kw_commit_group *group, size_t need);

/* Writes the identity of the store, in a transaction of its own. Returns 0, an errno, or an error of LMDB. */
int kw_lmdb_write_identity(const kw_lmdb_file *file, kw_database_identity identity);

/* Removes the records of a group that was not written to its end, if there are any. Returns 0, an errno, or an error of
 * LMDB. */
int kw_lmdb_remove_unfinished(const kw_lmdb_file *file);

#endif
