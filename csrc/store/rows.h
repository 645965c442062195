/* SPDX-License-Identifier: MIT
 *
 * rows: small state that lives beside the keys of a store and is neither versioned nor watched: users and roles, for
 * example.
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

#define KW_ROW_NAME_BYTES 511    /* of a name: LMDB's limit for a key */
#define KW_ROWS_BYTES (16 << 20) /* of all rows, with their names */

typedef struct kw_row {
  kw_blob *name;
  kw_blob *bytes;
} kw_row;

/* All zero is without rows. */
typedef struct kw_rows {
  kw_row *items; /* in order */
  size_t n;
  size_t cap;
  size_t bytes; /* that the rows take */
} kw_rows;

typedef struct kw_row_change {
  kw_slice name;
  kw_slice bytes;
  bool is_erased; /* the row is removed; `bytes` does not count */
} kw_row_change;

/* Writes the name of a row into the arena. With an empty key it is the prefix of all names of the table. Returns
 * false if memory is short. */
bool kw_rows_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name);

/* Makes one change. A row that is removed need not exist. Returns KW_OK, KW_ERR_REQUEST_TOO_LARGE for a name that is
 * too long, KW_ERR_NO_SPACE if all rows would take too much, or KW_ERR_NO_MEMORY. */
int kw_rows_apply(kw_rows *rows, const kw_row_change *change);

/* Makes a copy, which shares the bytes of the rows. Returns false if memory is short. */
bool kw_rows_copy(const kw_rows *rows, kw_rows *copy);

/* Releases all rows. */
void kw_rows_drop(kw_rows *rows);

/* Returns the row of a name, or NULL. */
const kw_row *kw_rows_find(const kw_rows *rows, kw_slice name);

/* Returns the position of the first row whose name is not below `name`. */
size_t kw_rows_seek(const kw_rows *rows, kw_slice name);

#endif
