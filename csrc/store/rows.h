/* SPDX-License-Identifier: MIT
 *
 * rows: small state of a store that is stored beside the keys, and is neither versioned nor watched: users and roles,
 * for example.
 *
 *   table, key  ->  bytes
 *
 * The name of a row is its table, which has no zero byte, a zero byte, and its key. Rows are in the order of their
 * names: by table, then by key.
 */
#ifndef KW_STORE_ROWS_H
#define KW_STORE_ROWS_H

#include "base/arena.h"
#include "base/blob.h"
#include "disk/commit_group.h"

#define KW_ROW_NAME_BYTES 511    /* length of the longest name: LMDB's limit for a key */
#define KW_ROWS_BYTES (16 << 20) /* limit for the memory of all rows with their names */

/* Owns a reference to each blob. */
typedef struct kw_row {
  kw_blob *name;
  kw_blob *bytes;
} kw_row;

/* All zero: no rows. */
typedef struct kw_rows {
  kw_row *items; /* in order */
  size_t n;
  size_t cap;
  size_t bytes; /* memory of the rows */
} kw_rows;

/* The slices are borrowed. */
typedef struct kw_row_change {
  kw_slice name;
  kw_slice bytes;
  bool is_erased; /* the row is removed; `bytes` is ignored */
} kw_row_change;

/* Writes the name of a row into the arena. With an empty key this is the prefix of all names of the table. Returns
 * false if memory is short. */
bool kw_rows_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name);

/* Makes one change, and copies name and bytes. A row that is removed need not exist. After an error nothing has
 * changed. Returns KW_OK, KW_ERR_REQUEST_TOO_LARGE for a name that is too long, KW_ERR_NO_SPACE if all rows would take
 * more than KW_ROWS_BYTES, or KW_ERR_NO_MEMORY. */
int kw_rows_apply(kw_rows *rows, const kw_row_change *change);

/* Makes the changes of rows in a commit group. Returns what kw_rows_apply returns; after an error some may have been
 * made. */
int kw_rows_apply_group(kw_rows *rows, const kw_commit_group *group);

/* Makes a copy, which shares the blobs of the rows. *copy is overwritten; the caller drops it. Returns false, with an
 * empty copy, if memory is short. */
bool kw_rows_copy(const kw_rows *rows, kw_rows *copy);

/* Releases all rows, and frees the memory. `rows` is then empty and ready for use. */
void kw_rows_drop(kw_rows *rows);

/* Returns the row of a name, or NULL. The row is valid until the next change of the rows. */
const kw_row *kw_rows_find(const kw_rows *rows, kw_slice name);

/* Returns the position in `items` of the first row whose name is not below `name`; rows->n if there is none. */
size_t kw_rows_seek(const kw_rows *rows, kw_slice name);

#endif
