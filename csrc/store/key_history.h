/* SPDX-License-Identifier: MIT
 *
 * key_history: what happened to one key, and when.
 *
 * All changes of the key that are still known, in order of revision, deletions among them:
 *
 *   put foo at 2, put at 3, delete at 4, put at 6
 *     changes   2  3  4t 6        (t: tombstone)
 *     state     create_revision 6, version 1
 *   at revision 3 the key is what 3 wrote; at 4 and 5 it is not there; at 6 it is new
 *   compacted at 3 -> 3 4t 6      compacted at 4 -> 4t 6      compacted at 5 -> 6
 *
 * The newest change with main <= R is what holds at R, so a look-up in the past is a binary search.
 * The usual key has one change, which lies inside the record itself.
 */
#ifndef KW_STORE_KEY_HISTORY_H
#define KW_STORE_KEY_HISTORY_H

#include "model/kv.h"

typedef struct kw_change {
  int64_t main;
  uint32_t sub;
  uint32_t tombstone; /* a boolean */
} kw_change;

/* The living generation of the key; all zero while the key is deleted. */
typedef struct kw_key_state {
  int64_t create_revision;
  int64_t version;
  int64_t lease;
} kw_key_state;

typedef struct kw_key_history {
  kw_key_state state;
  uint32_t first; /* changes before it were compacted away */
  uint32_t n;     /* the known changes are [first, n) */
  uint32_t cap;   /* of `many`; 0: the only change is `one` */
  uint32_t key_len;
  union {
    kw_change one;
    kw_change *many;
  };
  uint8_t key[];
} kw_key_history;

/* A history without changes, or NULL if memory is short. Copies the key. */
kw_key_history *kw_key_history_new(kw_slice key);
void kw_key_history_free(kw_key_history *history);

/* Makes room for one more change, so that the next push cannot fail; false if memory is short. */
bool kw_key_history_reserve(kw_key_history *history);

/* Adds the newest change, and takes it back. */
void kw_key_history_push(kw_key_history *history, kw_change change);
void kw_key_history_pop(kw_key_history *history);

/* Forgets the oldest change. */
void kw_key_history_drop_first(kw_key_history *history);

/* The newest change with main <= rev, which may be a tombstone, or NULL. */
const kw_change *kw_key_history_at(const kw_key_history *history, int64_t rev);

static inline kw_slice kw_key_history_key(const kw_key_history *history) {
  return kw_slice_of(history->key, history->key_len);
}

static inline bool kw_key_history_is_live(const kw_key_history *history) {
  return history->state.create_revision != 0;
}

static inline bool kw_key_history_is_empty(const kw_key_history *history) {
  return history->first == history->n;
}

static inline const kw_change *kw_key_history_changes(const kw_key_history *history) {
  return history->cap == 0 ? &history->one : history->many;
}

/* The oldest change that is known. There must be one, here and below. */
static inline const kw_change *kw_key_history_first(const kw_key_history *history) {
  return &kw_key_history_changes(history)[history->first];
}

static inline const kw_change *kw_key_history_last(const kw_key_history *history) {
  return &kw_key_history_changes(history)[history->n - 1];
}

static inline kw_revision kw_change_revision(const kw_change *change) {
  return (kw_revision){.main = change->main, .sub = change->sub};
}

#endif
