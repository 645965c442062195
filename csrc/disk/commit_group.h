/* SPDX-License-Identifier: MIT
 *
 * commit_group: the changes that become durable together, and the numbers that become durable with them.
 *
 * A commit group is a list of changes in the order in which they were made. A group only points to its records: they
 * must stay at their addresses until the group is cleared. The bytes of a row are retained by the group.
 *
 * A large delete may have a million records, which are an array in the log already. So records that are adjacent in
 * memory are one item of the group: a span. A walk returns them one by one.
 */
#ifndef KW_DISK_COMMIT_GROUP_H
#define KW_DISK_COMMIT_GROUP_H

#include "base/blob.h"
#include "model/kv.h"

typedef struct kw_commit_meta {
  int64_t revision;         /* newest revision of the store */
  int64_t compact_revision; /* -1 before the first compaction */
  int64_t compacted_until;  /* first revision that the compaction has not visited yet */
  int64_t alarms;           /* bits that only the caller interprets */
  int64_t sequence;         /* number of the group, from 1, without gaps; 0 before the first */
} kw_commit_meta;

typedef enum kw_commit_kind {
  KW_COMMIT_PUT,
  KW_COMMIT_REMOVE,
  KW_COMMIT_PUT_LEASE,
  KW_COMMIT_REMOVE_LEASE,
  KW_COMMIT_PUT_ROW,
  KW_COMMIT_REMOVE_ROW,
  KW_COMMIT_SPAN /* only as an item: a walk returns its puts */
} kw_commit_kind;

typedef struct kw_commit_record {
  int64_t main;
  uint32_t sub;
  uint32_t tombstone; /* a boolean */
  kw_blob *record;
} kw_commit_record;

typedef struct kw_commit_change {
  kw_commit_kind kind : 8;
  bool tombstone; /* of a record */
  union {
    uint32_t sub;    /* of a record */
    uint32_t n_puts; /* of a span */
  };
  union {
    int64_t main;                 /* of a record */
    const kw_commit_record *puts; /* of a span, borrowed */
    int64_t lease;                /* id */
    kw_blob *name;                /* of a row, retained */
  };
  union {
    const kw_blob *record; /* borrowed; NULL if the record is removed */
    int64_t ttl;           /* of a lease, in seconds */
    kw_blob *row;          /* bytes of a row, retained; NULL if the row is removed */
  };
} kw_commit_change;

/* All zero is an empty group. */
typedef struct kw_commit_group {
  size_t n;                /* number of changes */
  kw_commit_change *items; /* the changes; a span is several changes */
  size_t n_items;
  size_t cap;
  size_t n_rows;       /* number of changes of rows */
  kw_commit_meta meta; /* set when the group is submitted */
} kw_commit_group;

/* A walk over the changes of a group. {.group = group} is before the first change. */
typedef struct kw_commit_walk {
  const kw_commit_group *group;
  size_t item;          /* index of the next item */
  uint32_t at;          /* index of the next put in the item, if that is a span */
  kw_commit_change put; /* the last put of a span that the walk has returned */
} kw_commit_walk;

/* Releases the rows, and frees the memory of the group. */
void kw_commit_group_drop(kw_commit_group *group);

/* Empties the group, but keeps memory for a group of usual size. Its meta is unchanged. */
void kw_commit_group_clear(kw_commit_group *group);

/* Reserves memory for `n` more items: the next `n` changes cannot fail. Returns false if memory is short. */
bool kw_commit_group_reserve(kw_commit_group *group, size_t n);

/* Adds a record. Records are added in rising order of revisions. This function and the next five return false if memory
 * is short. */
bool kw_commit_group_put(kw_commit_group *group, kw_revision rev, bool tombstone,
                         const kw_blob *record);

/* Removes the record of a revision. It need not exist. */
bool kw_commit_group_remove(kw_commit_group *group, kw_revision rev, bool tombstone);

/* Adds a lease. `ttl` is in seconds. */
bool kw_commit_group_put_lease(kw_commit_group *group, int64_t id, int64_t ttl);

/* Removes a lease. It need not exist. */
bool kw_commit_group_remove_lease(kw_commit_group *group, int64_t id);

/* Adds a row, or replaces it. Retains both blobs. */
bool kw_commit_group_put_row(kw_commit_group *group, kw_blob *name, kw_blob *bytes);

/* Removes a row. It need not exist. Retains the name. */
bool kw_commit_group_remove_row(kw_commit_group *group, kw_blob *name);

/* Adds a record, like kw_commit_group_put. Records that are adjacent in memory become one item. The caller must have
 * reserved memory for an item, so this cannot fail. */
void kw_commit_group_put_at(kw_commit_group *group, const kw_commit_record *put);

/* Removes the last change, which must not be the change of a row. */
void kw_commit_group_undo(kw_commit_group *group);

/* Returns the next change of a walk, or NULL at the end. It is valid until the next call. */
const kw_commit_change *kw_commit_walk_next(kw_commit_walk *walk);

/* Returns the bytes of the records and rows of the group. */
size_t kw_commit_group_bytes(const kw_commit_group *group);

/* True if the group removes records. */
bool kw_commit_group_has_removals(const kw_commit_group *group);

/* Moves all items to the end of `to`, which has reserved memory for them and gets the group's meta. The group becomes
 * empty. */
void kw_commit_group_move(kw_commit_group *group, kw_commit_group *to);

/* Keeps only the removals of records, and appends the removals of `newer`, which becomes empty. Returns KW_OK, or
 * KW_ERR_NO_MEMORY if the removals of `newer` were lost. */
int kw_commit_group_keep_removals(kw_commit_group *group, kw_commit_group *newer);

#endif
