/* SPDX-License-Identifier: MIT */
#include "disk/commit_group.h"

#include "base/mem.h"
#include "model/error.h"

static void release_rows(kw_commit_group *group) {
  for (size_t i = 0; i < group->n_items && group->n_rows > 0; i++) {
    const kw_commit_change *c = &group->items[i];
    if (c->kind != KW_COMMIT_PUT_ROW && c->kind != KW_COMMIT_REMOVE_ROW) continue;
    kw_blob_release(c->name);
    if (c->row != NULL) kw_blob_release(c->row);
    group->n_rows--;
  }
}

static void shrink(kw_commit_group *group) {
  kw_shrink(&group->items, &group->cap, group->n_items, sizeof *group->items);
}

void kw_commit_group_clear(kw_commit_group *group) {
  release_rows(group);
  group->n = group->n_items = 0;
  shrink(group);
}

void kw_commit_group_drop(kw_commit_group *group) {
  kw_commit_group_clear(group);
  kw_free(group->items);
  *group = (kw_commit_group){0};
}

bool kw_commit_group_reserve(kw_commit_group *group, size_t n) {
  return kw_reserve(&group->items, &group->cap, group->n_items + n, sizeof *group->items);
}

/* {====== Adding ====== */

static bool add(kw_commit_group *group, kw_commit_change c) {
  if (!kw_commit_group_reserve(group, 1)) return false;
  group->items[group->n_items++] = c;
  group->n++;
  return true;
}

bool kw_commit_group_put(kw_commit_group *group, kw_revision rev, bool tombstone,
                         const kw_blob *record) {
  return add(group, (kw_commit_change){.kind = KW_COMMIT_PUT,
                                       .main = rev.main,
                                       .sub = rev.sub,
                                       .tombstone = tombstone,
                                       .record = record});
}

/* Returns the last item if it is a span, else NULL. */
static kw_commit_change *last_span(kw_commit_group *group) {
  kw_commit_change *last = group->n_items == 0 ? NULL : &group->items[group->n_items - 1];
  return last != NULL && last->kind == KW_COMMIT_SPAN ? last : NULL;
}

void kw_commit_group_put_at(kw_commit_group *group, const kw_commit_record *put) {
  kw_commit_change *span = last_span(group);
  group->n++;
  if (span != NULL && span->puts + span->n_puts == put) {
    span->n_puts++;
  } else {
    assert(group->n_items < group->cap);
    group->items[group->n_items++] =
        (kw_commit_change){.kind = KW_COMMIT_SPAN, .puts = put, .n_puts = 1};
  }
}

bool kw_commit_group_remove(kw_commit_group *group, kw_revision rev, bool tombstone) {
  return add(group, (kw_commit_change){.kind = KW_COMMIT_REMOVE,
                                       .main = rev.main,
                                       .sub = rev.sub,
                                       .tombstone = tombstone});
}

bool kw_commit_group_put_lease(kw_commit_group *group, int64_t id, int64_t ttl) {
  return add(group, (kw_commit_change){.kind = KW_COMMIT_PUT_LEASE, .lease = id, .ttl = ttl});
}

bool kw_commit_group_remove_lease(kw_commit_group *group, int64_t id) {
  return add(group, (kw_commit_change){.kind = KW_COMMIT_REMOVE_LEASE, .lease = id});
}

static bool add_row(kw_commit_group *group, kw_commit_change c) {
  if (!add(group, c)) return false;
  kw_blob_retain(c.name);
  if (c.row != NULL) kw_blob_retain(c.row);
  group->n_rows++;
  return true;
}

bool kw_commit_group_put_row(kw_commit_group *group, kw_blob *name, kw_blob *bytes) {
  return add_row(group, (kw_commit_change){.kind = KW_COMMIT_PUT_ROW, .name = name, .row = bytes});
}

bool kw_commit_group_remove_row(kw_commit_group *group, kw_blob *name) {
  return add_row(group, (kw_commit_change){.kind = KW_COMMIT_REMOVE_ROW, .name = name});
}

void kw_commit_group_undo(kw_commit_group *group) {
  kw_commit_change *span = last_span(group);
  group->n--;
  if (span == NULL || --span->n_puts == 0) group->n_items--;
}

/* }====== */

const kw_commit_change *kw_commit_walk_next(kw_commit_walk *walk) {
  if (walk->item == walk->group->n_items) return NULL;
  const kw_commit_change *item = &walk->group->items[walk->item];
  if (item->kind != KW_COMMIT_SPAN) {
    walk->item++;
    return item;
  }
  const kw_commit_record *put = &item->puts[walk->at++];
  if (walk->at == item->n_puts) {
    walk->item++;
    walk->at = 0;
  }
  walk->put = (kw_commit_change){.kind = KW_COMMIT_PUT,
                                 .main = put->main,
                                 .sub = put->sub,
                                 .tombstone = put->tombstone != 0,
                                 .record = put->record};
  return &walk->put;
}

size_t kw_commit_group_bytes(const kw_commit_group *group) {
  size_t bytes = 0;
  kw_commit_walk walk = {.group = group};
  for (const kw_commit_change *c; (c = kw_commit_walk_next(&walk)) != NULL;) {
    if (c->kind == KW_COMMIT_PUT) bytes += c->record->len;
    if (c->kind == KW_COMMIT_PUT_ROW) bytes += c->name->len + c->row->len;
  }
  return bytes;
}

bool kw_commit_group_has_removals(const kw_commit_group *group) {
  for (size_t i = 0; i < group->n_items; i++) {
    if (group->items[i].kind == KW_COMMIT_REMOVE) return true;
  }
  return false;
}

void kw_commit_group_move(kw_commit_group *group, kw_commit_group *to) {
  assert(to->cap - to->n_items >= group->n_items);
  if (group->n_items > 0)
    memcpy(to->items + to->n_items, group->items, group->n_items * sizeof *group->items);
  to->n += group->n;
  to->n_items += group->n_items;
  to->n_rows += group->n_rows;
  to->meta = group->meta;
  group->n = group->n_items = group->n_rows = 0;
  shrink(group);
}

/* {====== Removals ====== */

static void filter_removals(kw_commit_group *group) {
  size_t n = 0;
  release_rows(group);
  for (size_t i = 0; i < group->n_items; i++) {
    if (group->items[i].kind == KW_COMMIT_REMOVE) group->items[n++] = group->items[i];
  }
  group->n = group->n_items = n;
}

int kw_commit_group_keep_removals(kw_commit_group *group, kw_commit_group *newer) {
  filter_removals(group);
  filter_removals(newer);
  bool ok = kw_commit_group_reserve(group, newer->n);
  if (ok && newer->n > 0) {
    memcpy(group->items + group->n, newer->items, newer->n * sizeof *newer->items);
    group->n = group->n_items += newer->n;
  }
  newer->n = newer->n_items = 0;
  shrink(group);
  shrink(newer);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

/* }====== */
