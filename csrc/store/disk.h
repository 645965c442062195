/* SPDX-License-Identifier: MIT
 *
 * disk: where a durable store keeps its records: a database, written in groups by a thread of its own.
 *
 * Changes are added to the group that gathers. A submit hands it to the thread, if that has nothing to do, and another
 * one gathers while it is written and synced. When the thread is done it rings the bell; what it has come to is then
 * taken by kw_disk_take. Everything but writing and ringing happens in the thread of the caller.
 *
 * Reads see what was durable when the last group was taken.
 */
#ifndef KW_STORE_DISK_H
#define KW_STORE_DISK_H

#include "base/bell.h"
#include "store/database.h"

typedef struct kw_disk kw_disk;

/* Opens or makes a store in a directory, which it makes, too. KW_ERR_STORAGE or KW_ERR_NO_SPACE, with a sentence in
 * `text`, if that cannot be; KW_ERR_NO_MEMORY. Nobody else can open it meanwhile. */
int kw_disk_open(const char *path, size_t map_bytes, kw_disk **disk, char text[KW_DISK_TEXT]);

/* What was submitted is written first. */
void kw_disk_close(kw_disk *disk);

/* Whether another process has opened it, and this is its child: then it can only be closed, which leaves the parent's
 * alone. */
bool kw_disk_is_inherited(const kw_disk *disk);

/* The reference becomes the disk's. */
void kw_disk_set_bell(kw_disk *disk, kw_bell bell);

/* What was there when it was opened. */
kw_disk_meta kw_disk_get_meta(const kw_disk *disk);
size_t kw_disk_records(const kw_disk *disk);
const char *kw_disk_path(const kw_disk *disk);

/* {====== Writing ====== */

/* These add to the group that gathers. Records rise, and stay where they are until their group was taken. False if
 * memory is short. */
bool kw_disk_put(kw_disk *disk, kw_revision rev, bool tombstone, const kw_blob *record);
bool kw_disk_remove(kw_disk *disk, kw_revision rev, bool tombstone);
bool kw_disk_put_lease(kw_disk *disk, int64_t id, int64_t ttl);
bool kw_disk_remove_lease(kw_disk *disk, int64_t id);

/* The same for rows. The group holds on to their blobs. */
bool kw_disk_put_row(kw_disk *disk, kw_blob *name, kw_blob *bytes);
bool kw_disk_remove_row(kw_disk *disk, kw_blob *name);

/* Takes the last change of the group that gathers back, which is not one of a row. */
void kw_disk_undo(kw_disk *disk);

/* Room for more changes, so that the next ones cannot fail; false if memory is short. */
bool kw_disk_reserve(kw_disk *disk, size_t n);

/* How many changes gather. */
size_t kw_disk_count(const kw_disk *disk);

/* Whether a submit would be taken; and handing the group over, which makes `meta` true. With `defragment`, all that
 * there is then is copied to a file of its own, without the gaps, which takes the place of the old one when the group
 * is taken. */
bool kw_disk_is_idle(const kw_disk *disk);
void kw_disk_submit(kw_disk *disk, const kw_disk_meta *meta, bool defragment);

/* What the last defragmentation has come to; whatever that is, nothing is lost. */
int kw_disk_defragmented(const kw_disk *disk);

/* Whether the group that was submitted is done: then *rc is what came of it, and *meta is what it made true. With
 * `wait`, waits for it. False if nothing is under way. */
bool kw_disk_take(kw_disk *disk, bool wait, kw_disk_meta *meta, int *rc);

/* After a failure: throws away what was submitted and what gathers, but not the removals, which are good at any time in
 * their order: a tombstone outlasts the records that it hides. KW_ERR_NO_MEMORY if some are lost. */
int kw_disk_forget(kw_disk *disk);

/* }====== */

/* {====== Reading ====== */

/* KW_OK; KW_ERR_CORRUPT if the record is not there, or cannot be read. */
int kw_disk_read(const kw_disk *disk, kw_revision rev, bool tombstone, kw_slice *record);

/* The first record >= rev: 1, 0 if there is none, KW_ERR_CORRUPT if it cannot be read. */
int kw_disk_next(kw_disk *disk, kw_revision rev, kw_disk_entry *entry);

/* The lease after the one of an id, or the first, if that is NULL; `id` may be where `after` points. False at the
 * end. */
bool kw_disk_next_lease(kw_disk *disk, const int64_t *after, int64_t *id, int64_t *ttl);

/* The first row whose name is above *name, which becomes its name: start with an empty one. Both slices are good
 * until the next take. False at the end. */
bool kw_disk_next_row(kw_disk *disk, kw_slice *name, kw_slice *bytes);

/* Whether a lease or a row cannot be read: then the ends above may be false ones. */
bool kw_disk_is_damaged(const kw_disk *disk);

/* Bytes of the file, and those of it that are in use. */
int64_t kw_disk_get_size(const kw_disk *disk, int64_t *in_use);

/* A view of what is durable now; see store/database.h. KW_ERR_NO_MEMORY, KW_ERR_STORAGE. */
int kw_disk_open_view(kw_disk *disk, kw_view **view);

/* }====== */

#ifdef KW_PROBE
/* While it is held, the thread begins no group; and what the next group comes to instead of being written, KW_OK for
 * nothing. */
void kw_disk_hold(kw_disk *disk, bool hold);
void kw_disk_fail_next(kw_disk *disk, int rc);
#endif

#endif
