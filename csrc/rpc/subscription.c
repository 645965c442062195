/* SPDX-License-Identifier: MIT */
#include "rpc/subscription.h"

#include "base/mem.h"
#include "rpc/watch_call.h"

#define EVENT_BYTES 64 /* what an event is charged beside its bytes */

bool kw_subscription_init(kw_subscription *sub, const kw_range *range, size_t max_bytes) {
  *sub = (kw_subscription){.max_bytes = max_bytes, .key_len = (uint32_t)range->key.len};
  kw_link_init(&sub->news);
  kw_link_init(&sub->ready);
  sub->keys = kw_blob_new(range->key.len + range->end.len);
  if (sub->keys == NULL) return false;
  if (range->key.len > 0) memcpy(sub->keys->bytes, range->key.data, range->key.len);
  if (range->end.len > 0)
    memcpy(sub->keys->bytes + range->key.len, range->end.data, range->end.len);
  return true;
}

kw_range kw_subscription_range(const kw_subscription *sub) {
  const uint8_t *bytes = sub->keys->bytes;
  return (kw_range){.key = kw_slice_of(bytes, sub->key_len),
                    .end = kw_slice_of(bytes + sub->key_len, sub->keys->len - sub->key_len)};
}

/* {====== The queue ====== */

static kw_news *news_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_news, link);
}

static size_t charge_of(const kw_news *news) {
  return sizeof *news + news->n * EVENT_BYTES + (news->bytes == NULL ? 0 : news->bytes->len);
}

static void drop_news(kw_subscription *sub, kw_news *news) {
  sub->bytes -= charge_of(news);
  sub->events -= news->n;
  sub->pieces--;
  kw_link_remove(&news->link);
  if (news->bytes != NULL) kw_blob_release(news->bytes);
  kw_free(news);
}

static bool add_news(kw_subscription *sub, const kw_news *from) {
  kw_news *news = kw_alloc(sizeof *news);
  if (news == NULL) {
    if (from->bytes != NULL) kw_blob_release(from->bytes);
    return false;
  }
  *news = *from;
  kw_link_init(&news->link);
  kw_link_add(&sub->news, &news->link);
  sub->bytes += charge_of(news);
  sub->events += news->n;
  sub->pieces++;
  return true;
}

const kw_news *kw_subscription_first(const kw_subscription *sub) {
  bool is_empty = sub->pieces == sub->unfinished;
  return is_empty || sub->is_suspect ? NULL : news_at(sub->news.next);
}

void kw_subscription_skip(kw_subscription *sub) {
  bool has_more = true;
  while (has_more && !kw_link_is_alone(&sub->news)) {
    kw_news *news = news_at(sub->news.next);
    has_more = news->has_more;
    drop_news(sub, news);
    if (sub->sure_pieces > 0) sub->sure_pieces--;
  }
  if (sub->call != NULL && kw_subscription_has_room(sub)) kw_watch_call_relieve(sub->call);
}

void kw_subscription_forget_torn(kw_subscription *sub) {
  for (; sub->unfinished > 0; sub->unfinished--) drop_news(sub, news_at(sub->news.prev));
  sub->torn = 0;
}

/* }====== */

/* A piece that ends inside of revision `last`: what is before that is complete. */
static bool push_torn(kw_subscription *sub, kw_news *news, int64_t last) {
  if (last > sub->next) {
    kw_news complete = *news;
    complete.until = last;
    kw_blob_retain(news->bytes);
    if (!add_news(sub, &complete)) {
      kw_blob_release(news->bytes);
      return false;
    }
    sub->unfinished = sub->torn = 0;
    sub->next = news->revision = last;
  }
  news->has_more = true;
  if (!add_news(sub, news)) return false;
  sub->unfinished++;
  sub->torn += charge_of(news);
  return true;
}

bool kw_subscription_push(kw_subscription *sub, kw_slice response, size_t n, int64_t last,
                          bool has_more) {
  bool is_told = last < sub->next && sub->unfinished == 0;
  if (is_told) return true; /* before */
  kw_news news = {.kind = KW_NEWS_EVENTS,
                  .revision = sub->next,
                  .n = (uint32_t)n,
                  .bytes = kw_blob_copy(response)};
  if (news.bytes == NULL) return false;
  if (last > sub->seen) sub->seen = last;
  if (has_more) return push_torn(sub, &news, last);
  if (!add_news(sub, &news)) return false;
  sub->unfinished = sub->torn = 0;
  if (last >= sub->next) sub->next = last + 1;
  return true;
}

void kw_subscription_doubt(kw_subscription *sub) {
  sub->is_suspect = true;
  sub->sure_pieces = sub->pieces;
  sub->sure_next = sub->next;
  sub->sure_seen = sub->seen;
}

void kw_subscription_believe(kw_subscription *sub) {
  sub->is_suspect = false;
  sub->sure_pieces = 0;
}

void kw_subscription_retract(kw_subscription *sub) {
  if (!sub->is_suspect) return;
  while (sub->pieces > sub->sure_pieces) drop_news(sub, news_at(sub->news.prev));
  sub->next = sub->sure_next;
  sub->seen = sub->sure_seen;
  kw_subscription_believe(sub);
}

/* Progress that nobody took yet is replaced by what goes further; without memory it is not told. */
static bool add_progress(kw_subscription *sub, int64_t revision) {
  kw_news *last = sub->pieces == sub->sure_pieces ? NULL : news_at(sub->news.prev);
  if (last == NULL || last->kind != KW_NEWS_PROGRESS)
    return add_news(sub, &(kw_news){.kind = KW_NEWS_PROGRESS, .revision = revision});
  last->revision = revision;
  return true;
}

/* In the middle of an answer progress is not believed. */
bool kw_subscription_advance(kw_subscription *sub, int64_t revision) {
  if (revision > sub->seen) sub->seen = revision;
  if (revision < sub->next || sub->unfinished > 0) return false;
  sub->next = revision + 1;
  add_progress(sub, revision);
  return true;
}

bool kw_subscription_tick(kw_subscription *sub, int64_t revision) {
  bool is_known = revision == sub->next - 1 && sub->unfinished == 0;
  if (sub->progress && is_known) return add_progress(sub, revision);
  return kw_subscription_advance(sub, revision);
}

void kw_subscription_fail(kw_subscription *sub, int64_t compact_revision, kw_slice reason,
                          int error) {
  kw_news news = {.kind = compact_revision > 0 ? KW_NEWS_COMPACTED : KW_NEWS_FAILED,
                  .revision = compact_revision,
                  .error = error};
  if (sub->state == KW_SUBSCRIPTION_FAILED) return;
  kw_subscription_forget_torn(sub);
  kw_subscription_retract(sub);
  if (reason.len > 0) news.bytes = kw_blob_copy(reason);
  add_news(sub, &news);
  sub->state = KW_SUBSCRIPTION_FAILED;
}

kw_blob *kw_subscription_refusal(const kw_subscription *sub) {
  if (kw_link_is_alone(&sub->news)) return NULL;
  const kw_news *last = news_at(sub->news.prev);
  return last->kind == KW_NEWS_FAILED ? last->bytes : NULL;
}

void kw_subscription_revive(kw_subscription *sub) {
  if (kw_subscription_refusal(sub) == NULL) return;
  drop_news(sub, news_at(sub->news.prev));
  sub->state = KW_SUBSCRIPTION_IDLE;
}

void kw_subscription_drop(kw_subscription *sub) {
  kw_watch_call_detach(sub);
  sub->state = KW_SUBSCRIPTION_FAILED;
  sub->unfinished = sub->torn = 0;
  while (!kw_link_is_alone(&sub->news)) drop_news(sub, news_at(sub->news.next));
  kw_link_remove(&sub->ready);
  if (sub->keys != NULL) kw_blob_release(sub->keys);
  sub->keys = NULL;
}
