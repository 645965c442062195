/* SPDX-License-Identifier: MIT */
#include "rpc/subscription.h"

#include "base/mem.h"

#define EVENT_BYTES 64 /* charge of an event, besides its bytes */

bool kw_subscription_init(kw_subscription *sub, const kw_range *range, size_t max_bytes) {
  *sub = (kw_subscription){.max_bytes = max_bytes, .key_len = (uint32_t)range->key.len};
  kw_link_init(&sub->notices);
  kw_link_init(&sub->ready);
  sub->keys = kw_blob_new(range->key.len + range->end.len);
  if (sub->keys == NULL) return false;
  kw_range_copy(range, sub->keys->bytes);
  return true;
}

kw_range kw_subscription_range(const kw_subscription *sub) {
  const uint8_t *bytes = sub->keys->bytes;
  return (kw_range){.key = kw_slice_of(bytes, sub->key_len),
                    .end = kw_slice_of(bytes + sub->key_len, sub->keys->len - sub->key_len)};
}

/* {====== The queue ====== */

static kw_notice *notice_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_notice, link);
}

static size_t charge_of(const kw_notice *notice) {
  return sizeof *notice + notice->n * EVENT_BYTES +
         (notice->bytes == NULL ? 0 : notice->bytes->len);
}

static void drop_notice(kw_subscription *sub, kw_notice *notice) {
  sub->bytes -= charge_of(notice);
  sub->events -= notice->n;
  sub->pieces--;
  kw_link_remove(&notice->link);
  if (notice->bytes != NULL) kw_blob_release(notice->bytes);
  kw_free(notice);
}

/* Queues a copy of a notice. Takes over the reference to its bytes, even after a failure. Returns false if memory is
 * short. */
static bool add_notice(kw_subscription *sub, const kw_notice *from) {
  kw_notice *notice = kw_alloc(sizeof *notice);
  if (notice == NULL) {
    if (from->bytes != NULL) kw_blob_release(from->bytes);
    return false;
  }
  *notice = *from;
  kw_link_init(&notice->link);
  kw_link_add(&sub->notices, &notice->link);
  sub->bytes += charge_of(notice);
  sub->events += notice->n;
  sub->pieces++;
  return true;
}

const kw_notice *kw_subscription_first(const kw_subscription *sub) {
  bool is_empty = sub->pieces == sub->unfinished;
  return is_empty || sub->is_suspect ? NULL : notice_at(sub->notices.next);
}

void kw_subscription_skip(kw_subscription *sub) {
  bool has_more = true;
  while (has_more && !kw_link_is_alone(&sub->notices)) {
    kw_notice *notice = notice_at(sub->notices.next);
    has_more = notice->has_more;
    drop_notice(sub, notice);
    if (sub->sure_pieces > 0) sub->sure_pieces--;
  }
  if (sub->call != NULL && kw_subscription_has_room(sub)) sub->on_room(sub->call);
}

void kw_subscription_forget_torn(kw_subscription *sub) {
  for (; sub->unfinished > 0; sub->unfinished--) drop_notice(sub, notice_at(sub->notices.prev));
  sub->torn = 0;
}

/* }====== */

/* Queues a fragment that ends inside revision `last`. If the fragment also has events of earlier revisions, it is
 * queued twice: as a notice of these events, which can be taken at once, and as the beginning of the incomplete
 * revision. */
static bool push_torn(kw_subscription *sub, kw_notice *notice, int64_t last) {
  if (last > sub->next) {
    kw_notice complete = *notice;
    complete.until = last;
    kw_blob_retain(notice->bytes);
    if (!add_notice(sub, &complete)) {
      kw_blob_release(notice->bytes);
      return false;
    }
    sub->unfinished = sub->torn = 0;
    sub->next = notice->revision = last;
  }
  notice->has_more = true;
  if (!add_notice(sub, notice)) return false;
  sub->unfinished++;
  sub->torn += charge_of(notice);
  return true;
}

void kw_subscription_note_received(kw_subscription *sub, int64_t last) {
  if (last > sub->seen) sub->seen = last;
  if (last >= sub->next) sub->next = last + 1;
}

bool kw_subscription_push(kw_subscription *sub, kw_slice response, size_t n, int64_t last,
                          bool has_more) {
  bool is_known = last < sub->next && sub->unfinished == 0;
  if (is_known) return true;
  kw_notice notice = {.kind = KW_NOTICE_EVENTS,
                      .revision = sub->next,
                      .n = (uint32_t)n,
                      .bytes = kw_blob_copy(response)};
  if (notice.bytes == NULL) return false;
  if (last > sub->seen) sub->seen = last;
  if (has_more) return push_torn(sub, &notice, last);
  if (!add_notice(sub, &notice)) return false;
  sub->unfinished = sub->torn = 0;
  if (last >= sub->next) sub->next = last + 1;
  return true;
}

void kw_subscription_suspect(kw_subscription *sub) {
  sub->is_suspect = true;
  sub->sure_pieces = sub->pieces;
  sub->sure_next = sub->next;
  sub->sure_seen = sub->seen;
}

void kw_subscription_validate(kw_subscription *sub) {
  sub->is_suspect = false;
  sub->sure_pieces = 0;
}

void kw_subscription_retract(kw_subscription *sub) {
  if (!sub->is_suspect) return;
  while (sub->pieces > sub->sure_pieces) drop_notice(sub, notice_at(sub->notices.prev));
  sub->next = sub->sure_next;
  sub->seen = sub->sure_seen;
  kw_subscription_validate(sub);
}

/* Queues progress, or raises the revision of the progress at the end of the queue. Returns false if memory is short. */
static bool add_progress(kw_subscription *sub, int64_t revision) {
  kw_notice *last = sub->pieces == sub->sure_pieces ? NULL : notice_at(sub->notices.prev);
  if (last == NULL || last->kind != KW_NOTICE_PROGRESS)
    return add_notice(sub, &(kw_notice){.kind = KW_NOTICE_PROGRESS, .revision = revision});
  last->revision = revision;
  return true;
}

bool kw_subscription_advance(kw_subscription *sub, int64_t revision) {
  if (revision > sub->seen) sub->seen = revision;
  if (revision < sub->next || sub->unfinished > 0) return false;
  sub->next = revision + 1;
  add_progress(sub, revision);
  return true;
}

bool kw_subscription_confirm(kw_subscription *sub, int64_t revision, int64_t now) {
  if (revision >= sub->next - 1 && sub->unfinished == 0) sub->heard_at = now;
  return kw_subscription_advance(sub, revision) || sub->announces_progress;
}

bool kw_subscription_tick(kw_subscription *sub, int64_t revision) {
  bool is_known = revision == sub->next - 1 && sub->unfinished == 0;
  if (sub->progress && is_known) return add_progress(sub, revision);
  return kw_subscription_advance(sub, revision);
}

void kw_subscription_fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason,
                          int error) {
  kw_notice notice = {.kind = compact_revision > 0 ? KW_NOTICE_COMPACTED : KW_NOTICE_FAILED,
                      .revision = compact_revision,
                      .error = error};
  if (sub->state == KW_SUBSCRIPTION_FAILED) return;
  kw_subscription_forget_torn(sub);
  kw_subscription_retract(sub);
  if (reason.len > 0) notice.bytes = kw_blob_copy(reason);
  add_notice(sub, &notice);
  sub->state = KW_SUBSCRIPTION_FAILED;
}

kw_blob *kw_subscription_refusal(const kw_subscription *sub) {
  if (kw_link_is_alone(&sub->notices)) return NULL;
  const kw_notice *last = notice_at(sub->notices.prev);
  return last->kind == KW_NOTICE_FAILED ? last->bytes : NULL;
}

void kw_subscription_revive(kw_subscription *sub) {
  if (kw_subscription_refusal(sub) == NULL) return;
  drop_notice(sub, notice_at(sub->notices.prev));
  sub->state = KW_SUBSCRIPTION_IDLE;
}

void kw_subscription_drop(kw_subscription *sub) {
  sub->state = KW_SUBSCRIPTION_FAILED;
  sub->unfinished = sub->torn = 0;
  while (!kw_link_is_alone(&sub->notices)) drop_notice(sub, notice_at(sub->notices.next));
  kw_link_remove(&sub->ready);
  if (sub->keys != NULL) kw_blob_release(sub->keys);
  sub->keys = NULL;
}
