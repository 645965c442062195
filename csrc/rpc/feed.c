/* SPDX-License-Identifier: MIT */
#include "rpc/feed.h"

#include "base/mem.h"
#include "codec/event.h"
#include "codec/keyvalue.h"
#include "codec/response.h"
#include "codec/wire.h"
#include "model/error.h"

/* {====== The state ====== */

struct kw_feed_page {
  kw_feed_page *next;
  size_t len;
  char bytes[];
};

static kw_feed_page *copy_page(kw_slice answer) {
  kw_feed_page *page = kw_alloc_pages(sizeof *page + answer.len);
  if (page == NULL) return NULL;
  page->len = answer.len;
  memcpy(page->bytes, answer.data, answer.len);
  return page;
}

static void drop_page(kw_feed_page *page) {
  kw_free_pages(page, sizeof *page + page->len);
}

static void end_fill(kw_feed_state *state) {
  if (state->fill != NULL) kw_replica_fill_free(state->fill);
  state->fill = NULL;
}

int kw_feed_state_use(kw_feed_state *state, kw_store *replica, kw_replica_how how) {
  kw_work work = kw_work_of_turn();
  if (state->fill != NULL && !kw_replica_fill_is_of(state->fill, replica, how)) end_fill(state);
  if (state->fill == NULL)
    state->fill = kw_replica_fill_new(replica, how, state->revision, state->kvs, state->n);
  if (state->fill == NULL) return KW_ERR_NO_MEMORY;
  int rc = kw_replica_fill_step(state->fill, &work);
  if (rc != KW_UNFINISHED) end_fill(state);
  return rc;
}

/* Adds kvs after the others, in reserved space. Returns false if they are malformed or cannot follow the others. */
static bool add_kvs(kw_feed_state *state, const kw_repeated *kvs, int64_t revision) {
  const kw_slice *items = kvs->items;
  for (size_t i = 0; i < kvs->n; i++) {
    kw_kv *kv = &state->kvs[state->n];
    if (!kw_keyvalue_decode(items[i], kv) || !kw_kv_is_sound(kv, &state->range, revision))
      return false;
    if (state->n > 0 && kw_slice_compare(kv[-1].key, kv->key) >= 0) return false;
    state->n++;
  }
  return true;
}

/* Adds the content of a page. A part of a range stream has no revision. */
static int read_page(kw_feed_state *state, const kw_feed_page *page, bool is_part,
                     kw_arena *arena) {
  kw_response found = {0};
  size_t before = state->n;
  int rc = kw_response_decode(KW_OP_RANGE, kw_slice_of(page->bytes, page->len), arena, &found);
  if (rc != KW_OK) return rc == KW_ERR_NO_MEMORY ? rc : KW_ERR_MALFORMED_ANSWER;
  bool has_more = found.range.more || is_part;
  int64_t revision = state->revision != 0 ? state->revision : found.revision;
  bool is_sound = found.revision >= 0 && revision > 0 && revision <= INT64_MAX / 2 &&
                  (is_part || found.revision != 0) && (!has_more || found.range.kvs.n > 0);
  if (!is_sound) return KW_ERR_MALFORMED_ANSWER;
  if (!kw_reserve(&state->kvs, &state->cap, before + found.range.kvs.n, sizeof *state->kvs))
    return KW_ERR_NO_MEMORY;
  if (!add_kvs(state, &found.range.kvs, revision)) {
    state->n = before;
    return KW_ERR_MALFORMED_ANSWER;
  }
  state->revision = revision;
  state->has_more = has_more;
  return KW_OK;
}

int kw_feed_state_add(kw_feed_state *state, kw_slice answer, bool is_part) {
  kw_arena arena = {0};
  end_fill(state); /* the kvs may move */
  kw_feed_page *page = copy_page(answer);
  if (page == NULL) return KW_ERR_NO_MEMORY;
  int rc = read_page(state, page, is_part, &arena);
  kw_arena_drop(&arena);
  if (rc != KW_OK) {
    drop_page(page);
    return rc;
  }
  page->next = state->pages;
  state->pages = page;
  return KW_OK;
}

kw_slice kw_feed_state_last_key(const kw_feed_state *state) {
  return state->n == 0 ? kw_slice_of("", 0) : state->kvs[state->n - 1].key;
}

void kw_feed_state_drop(kw_feed_state *state) {
  end_fill(state);
  for (kw_feed_page *page = state->pages, *next; page != NULL; page = next) {
    next = page->next;
    drop_page(page);
  }
  kw_free(state->kvs);
  state->pages = NULL;
  state->kvs = NULL;
  state->n = state->cap = 0;
}

/* }====== */

/* {====== Events ====== */

#define FEW 4

/* The events of one revision, which are applied together. */
typedef struct gathered {
  kw_store *replica;
  kw_range range;
  kw_replica_event few[FEW];
  kw_replica_event *many; /* all events, if there are more than FEW; or NULL */
  size_t n;
  size_t cap;     /* of `many` */
  size_t applied; /* events of all earlier revisions */
} gathered;

/* Begins to gather. */
static void gather_for(gathered *all, kw_store *replica, const kw_subscription *sub) {
  all->replica = replica;
  all->range = kw_subscription_range(sub);
  all->many = NULL;
  all->n = all->cap = all->applied = 0;
}

/* Returns the events that were gathered. */
static kw_replica_event *events_of(gathered *all) {
  return all->many != NULL ? all->many : all->few;
}

static int64_t revision_of(gathered *all) {
  return all->n == 0 ? 0 : events_of(all)[0].kv.mod_revision;
}

/* Reserves memory for one more event. Returns false if memory is short. */
static bool make_room(gathered *all) {
  if (all->many == NULL && all->n < FEW) return true;
  bool is_first = all->many == NULL;
  if (!kw_reserve(&all->many, &all->cap, all->n + 1, sizeof *all->many)) return false;
  if (is_first) memcpy(all->many, all->few, sizeof all->few);
  return true;
}

/* Applies the gathered events. */
static int apply(gathered *all) {
  if (all->n == 0) return KW_OK;
  int rc = kw_replica_apply(all->replica, revision_of(all), events_of(all), all->n);
  if (rc != KW_OK) return rc;
  all->applied += all->n;
  all->n = 0;
  return KW_OK;
}

/* Adds an event. Before an event of a later revision is added, the gathered events are applied; an event that the
 * replica already has is skipped. */
static int gather(gathered *all, const kw_event_fields *event) {
  int64_t rev = event->kv.mod_revision;
  kw_kv sound = event->kv;
  if (event->is_delete) sound.create_revision = sound.version = 1;
  if (!kw_kv_is_sound(&sound, &all->range, INT64_MAX / 2)) return KW_ERR_MALFORMED_ANSWER;
  if (all->n > 0 && rev != revision_of(all)) {
    int rc = apply(all);
    if (rc != KW_OK) return rc;
  }
  if (rev <= kw_store_applied(all->replica)) return KW_OK;
  if (!make_room(all)) return KW_ERR_NO_MEMORY;
  events_of(all)[all->n++] = (kw_replica_event){.is_delete = event->is_delete, .kv = event->kv};
  return KW_OK;
}

/* Gathers the events of one fragment of an answer, from the revision `from` on, up to the one before `until`, unless
 * that is 0. */
static int read_fragment(gathered *all, kw_slice bytes, int64_t from, int64_t until) {
  kw_wire_reader reader = kw_wire_read(bytes);
  kw_wire_field field;
  kw_event_fields event;
  while (kw_wire_next(&reader, &field)) {
    if (field.number != KW_WATCH_RESPONSE_EVENTS || field.type != KW_WIRE_BYTES) continue;
    if (!kw_event_decode(field.bytes, &event)) return KW_ERR_MALFORMED_ANSWER;
    if (event.kv.mod_revision < from) continue;                     /* delivered before */
    if (until != 0 && event.kv.mod_revision >= until) return KW_OK; /* delivered later */
    int rc = gather(all, &event);
    if (rc != KW_OK) return rc;
  }
  return KW_OK;
}

/* Moves an answer, which may consist of fragments. The slices of an event are valid until the answer is dropped. */
static int move_events(gathered *all, const kw_notice *notice, size_t *bytes) {
  while (true) {
    kw_slice fragment = kw_blob_slice(notice->bytes);
    *bytes += fragment.len;
    int rc = read_fragment(all, fragment, notice->revision, notice->until);
    if (rc != KW_OK) return rc;
    if (!notice->has_more) return apply(all);
    notice = KW_CONTAINER_OF(notice->link.next, kw_notice, link);
  }
}

static int move_progress(gathered *all, int64_t revision) {
  if (revision <= kw_store_applied(all->replica)) return KW_OK;
  return kw_replica_advance(all->replica, revision);
}

/* Returns the next notice if it can be moved, or NULL. */
static const kw_notice *next_notice(const kw_subscription *sub) {
  const kw_notice *notice = kw_subscription_first(sub);
  if (notice == NULL) return NULL;
  return notice->kind == KW_NOTICE_EVENTS || notice->kind == KW_NOTICE_PROGRESS ? notice : NULL;
}

bool kw_feed_has_more(const kw_subscription *sub) {
  return next_notice(sub) != NULL;
}

int kw_feed_move(kw_store *replica, kw_subscription *sub, kw_feed_moved *moved) {
  gathered all;
  gather_for(&all, replica, sub);
  const kw_notice *notice;
  size_t bytes = 0;
  int rc = KW_OK;
  moved->answers = 0;
  while (rc == KW_OK && bytes < KW_FEED_BYTES && (notice = next_notice(sub)) != NULL) {
    rc = notice->kind == KW_NOTICE_EVENTS ? move_events(&all, notice, &bytes)
                                          : move_progress(&all, notice->revision);
    if (rc != KW_OK) break;
    kw_subscription_skip(sub);
    moved->answers++;
  }
  kw_free(all.many);
  moved->events = all.applied;
  return rc;
}

/* }====== */

/* {====== Feeding without calls from Lua ====== */

void kw_feed_join(kw_feed *feed, kw_store *replica, kw_subscription *sub,
                  const kw_feed_hooks *hooks) {
  kw_feed_part(feed);
  if (sub->feed != NULL) kw_feed_part(sub->feed);
  *feed = (kw_feed){.replica = replica, .sub = sub, .hooks = *hooks};
  sub->feed = feed;
}

void kw_feed_part(kw_feed *feed) {
  if (feed->sub != NULL) feed->sub->feed = NULL;
  feed->sub = NULL;
}

static bool begin(kw_feed *feed) {
  if (feed->is_moving || !feed->hooks.begin(feed->hooks.ctx)) return false;
  return feed->is_moving = true;
}

static bool end(kw_feed *feed) {
  feed->is_moving = false;
  return feed->hooks.end(feed->hooks.ctx);
}

/* Gathers those events of an answer that the subscription has not received before. */
static int read_answer(gathered *all, const kw_feed_answer *answer, int64_t from) {
  if (answer->only == NULL) return read_fragment(all, answer->bytes, from, 0);
  return answer->last < from ? KW_OK : gather(all, answer->only);
}

bool kw_feed_receive(kw_feed *feed, const kw_feed_answer *answer, int64_t now, bool *is_news) {
  kw_subscription *sub = feed->sub;
  if (sub->pieces > 0 || sub->is_suspect || !begin(feed)) return false;
  gathered all;
  gather_for(&all, feed->replica, sub);
  int rc = read_answer(&all, answer, sub->next);
  if (rc == KW_OK) rc = apply(&all);
  kw_free(all.many);
  *is_news = end(feed);
  if (rc != KW_OK) return false;
  kw_subscription_note_received(sub, answer->last);
  sub->heard_at = now;
  return true;
}

/* Moving may resume a paused call, which calls this function again: the inner call leaves the rest to the outer one. */
bool kw_feed_pull(kw_feed *feed, int64_t now) {
  kw_subscription *sub = feed->sub;
  kw_feed_moved moved;
  if (!kw_feed_has_more(sub)) return false;
  if (feed->is_moving) return false;
  if (!begin(feed)) return true;
  int rc = kw_feed_move(feed->replica, sub, &moved);
  bool is_news = end(feed);
  if (moved.answers > 0) sub->heard_at = now;
  return is_news || rc != KW_OK || kw_feed_has_more(sub);
}

/* }====== */
