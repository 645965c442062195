/* SPDX-License-Identifier: MIT
 *
 * rows: small states that live with a store, and are neither versioned nor watched: users and roles, for example.
 *
 *   table, key  ->  bytes
 *
 * Table and key together are the name of a state: the table, which has no zero byte, a zero, the key. States are in
 * order of their names, and so by table, then by key.
 */
#ifndef KW_STORE_ROWS_H
#define KW_STORE_ROWS_H

#include "base/arena.h"
#include "base/blob.h"

#define KW_ROW_NAME_BYTES 511    /* of a name: what the disk takes for a key */
#define KW_ROWS_BYTES (16 << 20) /* of all states, with their names */

typedef struct kw_row {
  kw_blob *name;
  kw_blob *bytes;
} kw_row;

/* One that is all zero is empty. */
typedef struct kw_rows {
  kw_row *items; /* in order */
  size_t n;
  size_t cap;
  size_t bytes;
} kw_rows;

typedef struct kw_row_change {
  kw_slice name;
  kw_slice bytes;
  bool is_erased; /* and has no bytes */
} kw_row_change;

/* The name of a state, in the arena; false if memory is short. With an empty key it is what all names of the
 * table begin with. */
bool kw_rows_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name);

/* Erasing what is not there is fine. KW_ERR_REQUEST_TOO_LARGE for a name, KW_ERR_NO_SPACE for too much in all,
 * KW_ERR_NO_MEMORY. */
int kw_rows_apply(kw_rows *rows, const kw_row_change *change);

/* Another one with the same states; false if memory is short. */
bool kw_rows_copy(const kw_rows *rows, kw_rows *copy);
void kw_rows_drop(kw_rows *rows);

/* The state of a name, or NULL; and the place of the first whose name is not below it. */
const kw_row *kw_rows_find(const kw_rows *rows, kw_slice name);
size_t kw_rows_seek(const kw_rows *rows, kw_slice name);

#endif
