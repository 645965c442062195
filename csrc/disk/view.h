/* SPDX-License-Identifier: MIT
 *
 * view: all records, leases and rows of a database that were durable when the view was opened. Later writes do not
 * change a view.
 *
 * A view may be read in any thread, by one thread at a time. It must be closed before its database. A defragmentation
 * replaces the database's file; a view keeps reading the file on which it was opened. Pages that a view sees are not
 * reused until the view is closed: until then the file grows with every write.
 */
#ifndef KW_DISK_VIEW_H
#define KW_DISK_VIEW_H

#include "disk/database.h"

typedef struct kw_view kw_view;

/* Opens a view. Returns KW_OK, KW_ERR_NO_MEMORY, KW_ERR_CORRUPT or KW_ERR_STORAGE. */
int kw_view_open(const kw_database *db, kw_view **view);

/* Closes a view, and frees it. */
void kw_view_close(kw_view *view);

/* Returns the meta of the last commit group that the view sees: its revision, its compacted revision and so on. */
kw_commit_meta kw_view_meta(const kw_view *view);

/* Reads the next record, in the order of revisions. Returns 1, 0 at the end, or KW_ERR_CORRUPT. The bytes are
 * valid until the view is closed. */
int kw_view_next(kw_view *view, kw_database_entry *entry);

/* Reads the first row whose name is above *name, which is empty at first; *name becomes the name of that row. Returns
 * 1, 0 at the end, or KW_ERR_CORRUPT. The bytes are valid until the view is closed. */
int kw_view_next_row(kw_view *view, kw_slice *name, kw_slice *bytes);

/* Reads the next lease, in the order of ids as unsigned numbers. `ttl` is in seconds. Returns 1, 0 at the end, or
 * KW_ERR_CORRUPT. */
int kw_view_next_lease(kw_view *view, int64_t *id, int64_t *ttl);

#endif
