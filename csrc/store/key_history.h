/* SPDX-License-Identifier: MIT
 *
 * key_history: the changes of one key.
 *
 * All changes that are still known, including deletions (tombstones), in the order of revisions:
 *
 *   put foo at 2, put at 3, delete at 4, put at 6
 *     changes   2  3  4t 6        (t: tombstone)
 *     state     create_revision 6, version 1
 *   at revision 3 the key has the record of 3; at 4 and 5 the key does not exist; at 6 it is new
 *   compacted at 3 -> 3 4t 6      compacted at 4 -> 4t 6      compacted at 5 -> 6
 *
 * The newest change with main <= R is valid at R: a lookup in the past is a binary search. Most keys have one change,
 * which is inside the struct.
 */
#ifndef KW_STORE_KEY_HISTORY_H
#define KW_STORE_KEY_HISTORY_H

#include "model/kv.h"

typedef struct kw_change {
  int64_t main;
  uint32_t sub;
  uint32_t tombstone; /* a boolean */
} kw_change;

/* The key since it was last created. */
typedef struct kw_key_state {
  int64_t create_revision;
  int64_t version;
  int64_t lease;
} kw_key_state;

typedef struct kw_key_history {
  kw_key_state state; /* all zero while the key is deleted, unless it is asleep */
  uint32_t first;     /* index of the oldest known change; those before it were compacted away */
  uint32_t n;         /* the known changes are [first, n) */
  uint32_t cap;       /* of `many`; 0: the only change is `one` */
  uint32_t key_len : 31;
  uint32_t is_asleep : 1; /* the key is deleted; the state is that before the deletion */
  union {
    kw_change one;
    kw_change *many;
  };
  uint8_t key[];
} kw_key_history;

/* Makes a history without changes, with an all-zero state. Copies the key. Returns NULL if memory is short, or if the
 * key is longer than INT32_MAX bytes. */
kw_key_history *kw_key_history_new(kw_slice key);

/* Frees the history. */
void kw_key_history_free(kw_key_history *history);

/* Reserves memory for one more change: the next push cannot fail. Returns false if memory is short. */
bool kw_key_history_reserve(kw_key_history *history);

/* Adds the newest change. Its memory was reserved. The caller updates the state. */
void kw_key_history_push(kw_key_history *history, kw_change change);

/* Removes the newest change. There must be one. The caller updates the state. */
void kw_key_history_pop(kw_key_history *history);

/* Removes the oldest change. There must be one. */
void kw_key_history_drop_first(kw_key_history *history);

/* Returns the newest change with main <= rev, which may be a tombstone; or NULL if none is known. This pointer, like
 * those of the functions below, is valid until the history changes. */
const kw_change *kw_key_history_at(const kw_key_history *history, int64_t rev);

/* Returns the key. */
static inline kw_slice kw_key_history_key(const kw_key_history *history) {
  return kw_slice_of(history->key, history->key_len);
}

/* True while the key exists. */
static inline bool kw_key_history_is_live(const kw_key_history *history) {
  return history->state.create_revision != 0 && !history->is_asleep;
}

/* True if no change is known. */
static inline bool kw_key_history_is_empty(const kw_key_history *history) {
  return history->first == history->n;
}

/* Returns the array whose elements [first, n) are the known changes. */
static inline const kw_change *kw_key_history_changes(const kw_key_history *history) {
  return history->cap == 0 ? &history->one : history->many;
}

/* Returns the oldest known change. There must be one. */
static inline const kw_change *kw_key_history_first(const kw_key_history *history) {
  return &kw_key_history_changes(history)[history->first];
}

/* Returns the newest change. There must be one. */
static inline const kw_change *kw_key_history_last(const kw_key_history *history) {
  return &kw_key_history_changes(history)[history->n - 1];
}

/* Returns the revision of a change. */
static inline kw_revision kw_change_revision(const kw_change *change) {
  return (kw_revision){.main = change->main, .sub = change->sub};
}

#endif
