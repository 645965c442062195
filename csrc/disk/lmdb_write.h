/* SPDX-License-Identifier: MIT
 *
 * lmdb_write: writes a commit group as one LMDB transaction, so that a full disk is noticed before the commit, not
 * during it.
 *
 * LMDB never frees the memory of its largest transaction. So the records of a large group are written in parts, each a
 * transaction of its own; the last transaction has the rest of the group and its numbers. Until the last transaction,
 * the file is marked as unfinished, and its records beyond the durable revision do not count. These records are removed
 * if a part fails; after a crash, by kw_lmdb_remove_unfinished.
 *
 * LMDB appends pages to the file, or reuses free ones. All pages that a group may need are allocated before it is
 * written. On a full disk free pages may be enough. The file is grown ahead of need, and a part of this reserve is left
 * to changes that free space: puts leave pages to deletes, and both leave pages to removals, so that compaction can
 * free space on a full disk.
 */
#ifndef KW_DISK_LMDB_WRITE_H
#define KW_DISK_LMDB_WRITE_H

#include "disk/commit_group.h"
#include "disk/lmdb_file.h"

/* Writes a group; see kw_database_write for the results. `seen` is the transaction that the database's reader sees:
 * pages that were freed later are not free yet. `is_durable`: the group is in the journal, its space was reserved, and
 * it may use all pages. */
int kw_lmdb_write(const kw_lmdb_file *file, size_t seen, const kw_commit_group *group,
                  bool is_durable);

/* Returns the number of leaf pages of all tables except meta that a transaction sees. */
size_t kw_lmdb_leaves(const kw_lmdb_file *file, MDB_txn *txn);

/* Returns the maximum number of bytes that a group may need, without those that every transaction needs. `leaves` is
 * the result of kw_lmdb_leaves. */
size_t kw_lmdb_need(const kw_lmdb_file *file, size_t leaves, const kw_commit_group *group);

/* Allocates space for groups that may need `need` bytes, and that will be written together. `group` is one of them: it
 * leaves pages to changes that free space, see above. Returns 0, an errno, or MDB_MAP_FULL. Any thread, also at the
 * same time as kw_lmdb_write. */
int kw_lmdb_reserve(const kw_lmdb_file *file, const kw_commit_group *group, size_t need);

/* Writes the identity of the store, in a separate transaction. Returns 0, an errno, or an error of LMDB. */
int kw_lmdb_write_identity(const kw_lmdb_file *file, kw_database_identity identity);

/* Removes the records of a group that was written only in part, if there are any. Returns 0, an errno, or an error of
 * LMDB. */
int kw_lmdb_remove_unfinished(const kw_lmdb_file *file);

#endif
