/* SPDX-License-Identifier: MIT
 *
 * index: all keys in order, each with its history; and how many of them live between any two keys.
 *
 * A B+tree. A slot of an inner node is the least key below it, the child, and how many live keys the child holds:
 *
 *            [ /a:3 | /m:2 ]                     counting a range walks two paths, not the range
 *            /             \
 *   [ /a /b /c(dead) /d ]  [ /m /z ]             leaves are chained
 *
 * To search a node without touching its keys, each node keeps what its keys have in common (`prefix`) and, for
 * each key, the eight bytes that follow (`heads`) as a number; only equal heads need the key itself.
 */
#ifndef KW_STORE_INDEX_H
#define KW_STORE_INDEX_H

#include "model/range.h"
#include "store/key_history.h"

#ifdef KW_PROBE
#define KW_INDEX_FAN 8 /* small, so that tests meet every split and merge */
#else
#define KW_INDEX_FAN 64 /* the leaf's mask of live keys is one word */
#endif

#define KW_INDEX_MAX_DEPTH 48

typedef struct kw_index_node kw_index_node;
typedef struct kw_index_leaf kw_index_leaf;

/* From the root down: the nodes, and the slot taken in each. */
typedef struct kw_index_path {
  struct {
    kw_index_node *node;
    unsigned at;
  } steps[KW_INDEX_MAX_DEPTH];
  unsigned n;
} kw_index_path;

typedef struct kw_index {
  kw_index_node *root; /* NULL while there are no keys */
  size_t n;            /* keys, dead ones included */
  int64_t live;

  kw_index_path path; /* to path_of, while the tree has not changed since */
  const kw_key_history *path_of;
} kw_index;

typedef struct kw_index_cursor {
  const kw_index_leaf *leaf;
  unsigned at;
} kw_index_cursor;

/* An all-zero index is empty and ready for use. Dropping it frees the histories. */
void kw_index_drop(kw_index *index);

kw_key_history *kw_index_find(const kw_index *index, kw_slice key);

/* Finds the history of a key, or adds one without changes. NULL, with nothing changed, if memory is short. */
kw_key_history *kw_index_find_or_add(kw_index *index, kw_slice key);

/* Removes a dead history from the index and frees it. */
void kw_index_remove(kw_index *index, kw_key_history *history);

/* Tells the index that a key of it has come to life, or died. */
void kw_index_set_live(kw_index *index, const kw_key_history *history, bool live);

/* How many keys of a range live. O(log n). */
int64_t kw_index_count(const kw_index *index, const kw_range *range);

/* A cursor before the first key >= `key`. It is good until a key is added or removed. */
kw_index_cursor kw_index_seek(const kw_index *index, kw_slice key);

/* The next history, or NULL at the end. */
kw_key_history *kw_index_next(kw_index_cursor *cursor);

/* The next history that lies inside a range whose key the cursor was set to, or NULL. */
kw_key_history *kw_index_next_in(kw_index_cursor *cursor, const kw_range *range);

#ifdef KW_PROBE
/* Whether every invariant of the tree holds; else the text of one that does not. */
const char *kw_index_check(const kw_index *index);
#endif

#endif
