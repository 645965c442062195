/* SPDX-License-Identifier: MIT
 *
 * kept: small states that live with a store, and are neither versioned nor watched: users and roles, for example.
 *
 *   table, key  ->  bytes
 *
 * Table and key together are the name of a state: the table, which has no zero byte, a zero, the key. States are in
 * order of their names, and so by table, then by key.
 */
#ifndef KW_STORE_KEPT_H
#define KW_STORE_KEPT_H

#include "base/arena.h"
#include "base/blob.h"

#define KW_KEPT_NAME_BYTES 511   /* of a name: what the disk takes for a key */
#define KW_KEPT_BYTES (16 << 20) /* of all states, with their names */

typedef struct kw_kept_state {
  kw_blob *name;
  kw_blob *bytes;
} kw_kept_state;

/* One that is all zero is empty. */
typedef struct kw_kept {
  kw_kept_state *states; /* in order */
  size_t n;
  size_t cap;
  size_t bytes;
} kw_kept;

typedef struct kw_kept_change {
  kw_slice name;
  kw_slice bytes;
  bool is_erased; /* and has no bytes */
} kw_kept_change;

/* The name of a state, in the arena; false if memory is short. With an empty key it is what all names of the
 * table begin with. */
bool kw_kept_name(kw_arena *arena, kw_slice table, kw_slice key, kw_slice *name);

/* Erasing what is not there is fine. KW_ERR_REQUEST_TOO_LARGE for a name, KW_ERR_NO_SPACE for too much in all,
 * KW_ERR_NO_MEMORY. */
int kw_kept_apply(kw_kept *kept, const kw_kept_change *change);

/* Another one with the same states; false if memory is short. */
bool kw_kept_copy(const kw_kept *kept, kw_kept *copy);
void kw_kept_drop(kw_kept *kept);

/* The state of a name, or NULL; and the place of the first whose name is not below it. */
const kw_kept_state *kw_kept_find(const kw_kept *kept, kw_slice name);
size_t kw_kept_seek(const kw_kept *kept, kw_slice name);

#endif
