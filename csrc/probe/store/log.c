/* SPDX-License-Identifier: MIT */
#include "store/log.c"

#include "probe/checks.h"

/* True if an entry of the log is at this address. */
static bool has_entry(const kw_log *log, const entry *e) {
  for (size_t i = 0; i < log->n; i++) {
    const chunk *c = log->directory[i].chunk;
    if (e >= c->entries && e < c->entries + c->n) return true;
  }
  return false;
}

/* Every span of the gathering commit group is of entries of the log. */
static const char *check_spans(const kw_log *log) {
  const kw_commit_group *group = log->group;
  size_t n = 0;
  for (size_t i = 0; i < group->n_items; i++) {
    const kw_commit_change *item = &group->items[i];
    n += item->kind == KW_COMMIT_SPAN ? item->n_puts : 1;
    for (uint32_t j = 0; item->kind == KW_COMMIT_SPAN && j < item->n_puts; j++) {
      if (!has_entry(log, &item->puts[j]) || item->puts[j].record == NULL)
        return "a record of a commit group is not in the log";
    }
  }
  return n == group->n ? NULL : "the changes of a commit group are counted wrongly";
}

const char *kw_log_check(const kw_log *log) {
  size_t count = 0, bytes = 0, of_chunk;
  kw_revision last = {0};
  for (size_t i = 0; i < log->n; i++) {
    const chunk *c = log->directory[i].chunk;
    uint32_t holes = 0;
    of_chunk = bytes;
    if (kw_revision_compare(log->directory[i].first, last) < 0) return "chunks are out of order";
    if (c->n > 0 && kw_revision_compare(log->directory[i].first, revision_of(&c->entries[0])) > 0)
      return "a chunk begins before its directory entry says";
    for (uint32_t j = 0; j < c->n; j++) {
      if (kw_revision_compare(last, revision_of(&c->entries[j])) >= 0)
        return "records are out of order";
      last = revision_of(&c->entries[j]);
      if (c->entries[j].record == NULL) {
        holes++;
        continue;
      }
      count++;
      bytes += kw_log_cost(c->entries[j].record->len);
    }
    if (holes != c->holes) return "the number of holes is wrong";
    if (bytes - of_chunk != c->bytes) return "the bytes of a chunk are wrong";
  }
  if (bytes != log->tail_bytes) return "the bytes in memory are wrong";
  if (log->dropped == NULL && log->dropped_bytes > 0)
    return "the bytes of dropped records are wrong";
  if (log->database != NULL) return check_spans(log); /* the database has most of the records */
  return count == log->count && bytes == log->bytes ? NULL : "count or bytes are wrong";
}
