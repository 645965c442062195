/* SPDX-License-Identifier: MIT
 *
 * index: all keys in order, each with its history, and the number of live keys between any two keys.
 *
 * A B+tree. An entry of an inner node is a child, the least key below the child, and the number of its live keys:
 *
 *            [ /a:3 | /m:2 ]                     counting a range walks two paths, not the range
 *            /             \
 *   [ /a /b /c(dead) /d ]  [ /m /z ]             leaves are linked
 *
 * A search avoids reading the keys of a node: a node has the common prefix of its keys (`prefix`) and, for each key,
 * the eight bytes after the prefix as a number (`heads`). The key itself is read only if heads are equal.
 *
 * A key is live while it exists. A dead key was deleted, but still has history.
 */
#ifndef KW_STORE_INDEX_H
#define KW_STORE_INDEX_H

#include "model/range.h"
#include "store/key_history.h"
#include "store/work.h"

#define KW_INDEX_FAN KW_LIMIT(64, 8) /* the leaf's mask of live keys is one word */

#define KW_INDEX_MAX_DEPTH 48

typedef struct kw_index_node kw_index_node;
typedef struct kw_index_leaf kw_index_leaf;

/* The nodes from the root down, and a position in each. */
typedef struct kw_index_path {
  struct {
    kw_index_node *node;
    unsigned at;
  } steps[KW_INDEX_MAX_DEPTH];
  unsigned n;
} kw_index_path;

typedef struct kw_index {
  kw_index_node *root; /* NULL, or an empty leaf, while there are no keys */
  size_t n;            /* keys, dead ones included */
  int64_t live;        /* live keys */

  kw_index_path path; /* a cache: the path to path_of */
  /* The key that was found or changed last; NULL: the path is not valid. */
  const kw_key_history *path_of;
} kw_index;

typedef struct kw_index_cursor {
  const kw_index_leaf *leaf;
  unsigned at;
} kw_index_cursor;

/* Frees all nodes and histories. An all-zero index is empty and ready for use. */
void kw_index_drop(kw_index *index);

/* Frees some of the nodes and histories. Returns true if none is left. Until then the index can only be dropped. */
bool kw_index_drop_within(kw_index *index, kw_work *work);

/* Returns the history of a key, or NULL. The index owns all histories. */
kw_key_history *kw_index_find(const kw_index *index, kw_slice key);

/* Returns the history of a key. If there is none, adds a history without changes, which counts as dead. Returns NULL,
 * with nothing changed, if memory is short. */
kw_key_history *kw_index_find_or_add(kw_index *index, kw_slice key);

/* Removes the history of a dead key, and frees it. */
void kw_index_remove(kw_index *index, kw_key_history *history);

/* Counts a key of the index as live or dead. Called after each change of history->state. */
void kw_index_set_live(kw_index *index, const kw_key_history *history, bool live);

/* Returns how many keys of a range are live. O(log n). */
int64_t kw_index_count(const kw_index *index, const kw_range *range);

/* Returns a cursor before the first key >= `key`. The cursor is valid until a key is added or removed. */
kw_index_cursor kw_index_seek(const kw_index *index, kw_slice key);

/* Returns the next history, live or dead, or NULL at the end. */
kw_key_history *kw_index_next(kw_index_cursor *cursor);

/* Returns the next live history, or NULL at the end. Skips any number of dead keys in O(log n). */
kw_key_history *kw_index_next_live(const kw_index *index, kw_index_cursor *cursor);

/* Returns the next live history if it is inside the range, else NULL. The cursor must begin with a seek to the range's
 * key. */
kw_key_history *kw_index_next_in(const kw_index *index, kw_index_cursor *cursor,
                                 const kw_range *range);

/* Returns a cursor after the last key < `key`; with `from_end`, after the last key of all. */
kw_index_cursor kw_index_seek_back(const kw_index *index, kw_slice key, bool from_end);

/* Returns the history before the cursor, live or dead, and moves there; or NULL at the first key. */
kw_key_history *kw_index_previous(kw_index_cursor *cursor);

/* Returns the live history before the cursor, and moves there; or NULL if there is none. Skips any number of dead keys
 * in O(log n). */
kw_key_history *kw_index_previous_live(const kw_index *index, kw_index_cursor *cursor);

#endif
