/* SPDX-License-Identifier: MIT */
#include "store/commit_group.h"

#include "base/mem.h"
#include "model/error.h"

static void release_rows(kw_commit_group *group) {
  for (size_t i = 0; i < group->n && group->n_rows > 0; i++) {
    const kw_commit_change *c = &group->changes[i];
    if (c->kind != KW_COMMIT_PUT_ROW && c->kind != KW_COMMIT_REMOVE_ROW) continue;
    kw_blob_release(c->name);
    if (c->row != NULL) kw_blob_release(c->row);
    group->n_rows--;
  }
}

static void shrink(kw_commit_group *group) {
  kw_shrink(&group->changes, &group->cap, group->n, sizeof *group->changes);
}

void kw_commit_group_clear(kw_commit_group *group) {
  release_rows(group);
  group->n = 0;
  shrink(group);
}

void kw_commit_group_drop(kw_commit_group *group) {
  kw_commit_group_clear(group);
  kw_free(group->changes);
  *group = (kw_commit_group){0};
}

bool kw_commit_group_reserve(kw_commit_group *group, size_t n) {
  return kw_reserve(&group->changes, &group->cap, group->n + n, sizeof *group->changes);
}

/* {====== Adding ====== */

static bool add(kw_commit_group *group, kw_commit_change c) {
  if (!kw_commit_group_reserve(group, 1)) return false;
  group->changes[group->n++] = c;
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
  group->n--;
}

/* }====== */

size_t kw_commit_group_bytes(const kw_commit_group *group) {
  size_t bytes = 0;
  for (size_t i = 0; i < group->n; i++) {
    const kw_commit_change *c = &group->changes[i];
    if (c->kind == KW_COMMIT_PUT) bytes += c->record->len;
    if (c->kind == KW_COMMIT_PUT_ROW) bytes += c->name->len + c->row->len;
  }
  return bytes;
}

bool kw_commit_group_has_removals(const kw_commit_group *group) {
  for (size_t i = 0; i < group->n; i++) {
    if (group->changes[i].kind == KW_COMMIT_REMOVE) return true;
  }
  return false;
}

void kw_commit_group_move(kw_commit_group *group, kw_commit_group *to) {
  assert(to->cap - to->n >= group->n);
  if (group->n > 0) memcpy(to->changes + to->n, group->changes, group->n * sizeof *group->changes);
  to->n += group->n;
  to->n_rows += group->n_rows;
  to->meta = group->meta;
  group->n = group->n_rows = 0;
  shrink(group);
}

/* {====== Removals ====== */

static void filter_removals(kw_commit_group *group) {
  size_t n = 0;
  release_rows(group);
  for (size_t i = 0; i < group->n; i++) {
    if (group->changes[i].kind == KW_COMMIT_REMOVE) group->changes[n++] = group->changes[i];
  }
  group->n = n;
}

int kw_commit_group_keep_removals(kw_commit_group *group, kw_commit_group *newer) {
  filter_removals(group);
  filter_removals(newer);
  bool ok = kw_commit_group_reserve(group, newer->n);
  if (ok && newer->n > 0) {
    memcpy(group->changes + group->n, newer->changes, newer->n * sizeof *newer->changes);
    group->n += newer->n;
  }
  newer->n = 0;
  shrink(group);
  shrink(newer);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

/* }====== */
