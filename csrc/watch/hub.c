/* SPDX-License-Identifier: MIT */
#include "watch/hub.h"

#include "base/mem.h"
#include "watch/walk.h"

#define WALK_MATCHES 16384     /* told in a step, at most, but for the end of a revision */
#define PROGRESS_PER_STEP 1024 /* watchers */
#define PLACE_BYTES 128        /* what the place of a watcher takes, about, beside itself */

struct kw_hub {
  kw_store *store;
  kw_hub_options options;
  kw_watch_group *synced;
  kw_watch_group *behind; /* those lagging watchers that a step brings up; empty between steps */
  kw_watcher_list lagging;
  kw_watcher **chosen; /* the same, as a list */
  size_t n_chosen;
  kw_walk walk;
  kw_outlet *outlets;
  size_t n; /* watchers */

  kw_map progress;      /* watchers that want it, by address */
  size_t progress_at;   /* how far the present round has come */
  int64_t progress_due; /* when the round goes on; INT64_MIN: to be set by the next step */
};

kw_hub_options kw_hub_defaults(void) {
  return (kw_hub_options){.walk_revisions = 1000,
                          .walk_bytes = 1 << 20,
                          .walk_watchers = 512,
                          .progress_ms = KW_DEFAULT_PROGRESS_MS};
}

/* Walks the watchers of an outlet: start with *at = 0. */
static kw_watcher *outlet_next(const kw_outlet *outlet, size_t *at) {
  if (outlet->with_ids) return kw_map_next(&outlet->ids, at);
  return (*at)++ == 0 ? outlet->only : NULL;
}

/* {====== Readiness ====== */

static void make_ready(kw_outlet *outlet) {
  kw_ready *ready = outlet->ready;
  if (!outlet->is_armed) return;
  if (ready->last == NULL) ready->last = &ready->first;
  outlet->is_armed = false;
  outlet->is_ready = true;
  outlet->next_ready = NULL;
  outlet->prev_ready = ready->last;
  *ready->last = outlet;
  ready->last = &outlet->next_ready;
}

static void remove_ready(kw_outlet *outlet) {
  if (!outlet->is_ready) return;
  *outlet->prev_ready = outlet->next_ready;
  if (outlet->next_ready != NULL) {
    outlet->next_ready->prev_ready = outlet->prev_ready;
  } else {
    outlet->ready->last = outlet->prev_ready;
  }
  outlet->is_ready = false;
}

void kw_outlet_arm(kw_outlet *outlet) {
  if (!outlet->is_ready && outlet->hub != NULL) outlet->is_armed = true;
}

void kw_outlet_disarm(kw_outlet *outlet) {
  outlet->is_armed = false;
  remove_ready(outlet);
}

kw_outlet *kw_ready_next(kw_ready *ready) {
  kw_outlet *outlet = ready->first;
  if (outlet != NULL) remove_ready(outlet);
  return outlet;
}

/* }====== */

/* {====== States ====== */

/* The only door: a watcher leaves the place that its state gives it, and enters another. */
static void leave(kw_hub *hub, kw_watcher *watcher) {
  switch ((kw_watcher_state)watcher->state) {
    case KW_WATCHER_SYNCED: kw_watch_group_remove(hub->synced, watcher); return;
    case KW_WATCHER_LAGGING: kw_watcher_list_remove(&hub->lagging, watcher); return;
    case KW_WATCHER_BLOCKED: kw_watcher_list_remove(&watcher->outlet->blocked, watcher); return;
    case KW_WATCHER_FAILED: return;
  }
}

static void enter_lagging(kw_hub *hub, kw_watcher *watcher) {
  watcher->state = KW_WATCHER_LAGGING;
  watcher->begins_later = false; /* it has begun */
  kw_watcher_list_add(&hub->lagging, watcher);
}

static void enter_blocked(kw_watcher *watcher) {
  watcher->state = KW_WATCHER_BLOCKED;
  watcher->begins_later = false;
  kw_watcher_list_add(&watcher->outlet->blocked, watcher);
}

/* Without memory for its slot it lags a little longer. */
static void enter_synced(kw_hub *hub, kw_watcher *watcher) {
  watcher->state = KW_WATCHER_SYNCED;
  if (!kw_watch_group_add(hub->synced, watcher)) enter_lagging(hub, watcher);
}

/* After a refusal: until its outlet has room; or, where that is empty and memory was short, until the next step. */
static void enter_waiting(kw_hub *hub, kw_watcher *watcher) {
  if (watcher->outlet->n == 0) {
    enter_lagging(hub, watcher);
  } else {
    enter_blocked(watcher);
  }
}

/* Whether two watchers were refused what seems to be one batch, which an outlet holds once for both. */
static bool is_alike(const kw_watcher *watcher, const kw_watcher *other) {
  return other != NULL && watcher->next_rev == other->next_rev && watcher->needs == other->needs;
}

/* Those that were refused try again, as many as there is room for. Whatever takes items out of an outlet calls this. */
static void unblock(kw_outlet *outlet) {
  const kw_watcher *last = NULL;
  size_t promised = 0;
  kw_watcher *watcher;
  while ((watcher = outlet->blocked.first) != NULL) {
    size_t others = is_alike(watcher, last) ? promised - watcher->needs : promised;
    if (!kw_outlet_has_room(outlet, watcher, others)) return;
    promised = others + watcher->needs;
    last = watcher;
    leave(outlet->hub, watcher);
    enter_lagging(outlet->hub, watcher);
  }
}

/* Ends a watcher with an item that says why. False if there is no memory for that: it lags. */
static bool fail_with(kw_hub *hub, kw_watcher *watcher, kw_item item) {
  leave(hub, watcher);
  if (!kw_outlet_push(watcher->outlet, &item)) {
    enter_lagging(hub, watcher);
    return false;
  }
  watcher->state = KW_WATCHER_FAILED;
  make_ready(watcher->outlet);
  return true;
}

/* What it needs is gone. If even that cannot be said for want of memory, it is said later. */
static void fail(kw_hub *hub, kw_watcher *watcher) {
  kw_item item = {
      .kind = KW_ITEM_COMPACTED, .watcher = watcher, .revision = kw_store_first_event(hub->store)};
  if (!fail_with(hub, watcher, item)) watcher->next_rev = 0;
}

/* What it needs is damaged. If that cannot be said for want of memory, the next step finds it again. */
static void fail_corrupt(kw_hub *hub, kw_watcher *watcher) {
  fail_with(hub, watcher, (kw_item){.kind = KW_ITEM_CORRUPT, .watcher = watcher});
}

/* }====== */

/* {====== Telling the synced ====== */

/* Tells a watcher what the walk has for it; notes a refusal. */
static bool tell(kw_hub *hub, kw_watcher *watcher) {
  kw_told told = kw_walk_tell(&hub->walk, watcher);
  watcher->was_refused = told == KW_REFUSED || told == KW_NO_MEMORY || told == KW_UNREADABLE;
  watcher->is_unreadable = told == KW_UNREADABLE;
  if (told == KW_TOLD) {
    watcher->was_told = true;
    make_ready(watcher->outlet);
  }
  return !watcher->was_refused;
}

/* Tells all watchers of the first slot; those that refuse leave the group, once the walk has let go of the slot. */
static void tell_slot(kw_hub *hub) {
  kw_watched *slot = kw_walk_first(&hub->walk);
  kw_watcher *first = slot->first, *next;
  size_t refused = 0;
  for (kw_watcher *watcher = first; watcher != NULL; watcher = watcher->next) {
    refused += !tell(hub, watcher);
  }
  kw_walk_done(&hub->walk);
  for (kw_watcher *watcher = first; refused > 0; watcher = next) {
    next = watcher->next;
    if (!watcher->was_refused) continue;
    refused--;
    leave(hub, watcher);
    enter_waiting(hub, watcher);
  }
}

/* Who could not be told for want of memory lags from here on. */
static void lag_all(kw_hub *hub, int64_t rev) {
  int64_t now = kw_store_revision(hub->store);
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    size_t at = 0;
    for (kw_watcher *w = outlet_next(outlet, &at); w != NULL; w = outlet_next(outlet, &at)) {
      if (w->state != KW_WATCHER_SYNCED || w->next_rev > now) continue;
      leave(hub, w);
      if (w->next_rev < rev) w->next_rev = rev;
      enter_lagging(hub, w);
    }
  }
}

/* All events of one revision, of which `entry` is the first; it becomes that of the next. */
static bool walk_revision(kw_hub *hub, kw_watch_group *group, kw_log_cursor *cursor,
                          kw_log_entry *entry, bool *more) {
  int64_t rev = entry->rev.main;
  do {
    if (kw_store_read_failure(hub->store) != KW_OK || !kw_walk_add(&hub->walk, group, entry))
      return false;
    *more = kw_store_next(hub->store, cursor, entry);
  } while (*more && entry->rev.main == rev);
  return *more || kw_store_read_failure(hub->store) == KW_OK;
}

/* One revision after the other: each is told as a whole, and for itself. */
static void on_visible(int64_t before, void *ctx) {
  kw_hub *hub = ctx;
  kw_log_entry entry;
  if (kw_watch_group_count(hub->synced) == 0) return;
  kw_log_cursor cursor = kw_store_seek(hub->store, before + 1);
  bool more = kw_store_next(hub->store, &cursor, &entry);
  while (more) {
    int64_t rev = entry.rev.main;
    bool ok = walk_revision(hub, hub->synced, &cursor, &entry, &more);
    while (ok && kw_walk_first(&hub->walk) != NULL) tell_slot(hub);
    kw_walk_reset(&hub->walk);
    if (ok) continue;
    lag_all(hub, rev);
    return;
  }
}

/* Only who had not begun, and still has not, may go on. */
static void on_replace(int64_t before, void *ctx) {
  kw_hub *hub = ctx;
  int64_t now = kw_store_revision(hub->store);
  int64_t rev = before > now ? before : now;
  for (kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    size_t at = 0;
    for (kw_watcher *w = outlet_next(outlet, &at); w != NULL; w = outlet_next(outlet, &at)) {
      if (w->state != KW_WATCHER_FAILED && !kw_watcher_is_early(w, rev)) fail(hub, w);
    }
  }
}

/* }====== */

/* {====== Bringing up the lagging ====== */

/* Moves a watcher that lags to those that this step brings up. */
static bool choose(kw_hub *hub, kw_watcher *watcher) {
  kw_watcher_list_remove(&hub->lagging, watcher);
  if (kw_watch_group_add(hub->behind, watcher)) {
    hub->chosen[hub->n_chosen++] = watcher;
    return true;
  }
  enter_lagging(hub, watcher); /* behind the others */
  return false;
}

/* Chooses the first that lags and those near it, of as many as a step may look at. */
static int64_t choose_near(kw_hub *hub) {
  int64_t from = INT64_MAX, first_event = kw_store_first_event(hub->store);
  kw_watcher *next, *watcher = hub->lagging.first;
  for (size_t i = 0; i < hub->options.walk_watchers && watcher != NULL; i++, watcher = next) {
    next = watcher->next;
    if (watcher->next_rev < first_event) {
      fail(hub, watcher);
      continue;
    }
    if (from == INT64_MAX) from = watcher->next_rev;
    int64_t ahead = watcher->next_rev - from;
    if (ahead < 0 || ahead >= (int64_t)hub->options.walk_revisions) continue;
    if (!choose(hub, watcher)) break;
  }
  return from;
}

static bool is_long_enough(const kw_hub *hub, size_t revisions) {
  return revisions >= hub->options.walk_revisions || hub->walk.matches >= WALK_MATCHES ||
         hub->walk.most_bytes >= hub->options.walk_bytes;
}

/* Walks whole revisions from `from` on; returns the last one that was covered, or 0 if memory is short, or a record
 * cannot be read: not one before `reached`. */
static int64_t walk_from(kw_hub *hub, int64_t from, int64_t *reached) {
  kw_log_cursor cursor = kw_store_seek(hub->store, from);
  kw_log_entry entry;
  bool more = kw_store_next(hub->store, &cursor, &entry);
  for (size_t revisions = 0; more; revisions++) {
    if (is_long_enough(hub, revisions)) return entry.rev.main - 1;
    if (!walk_revision(hub, hub->behind, &cursor, &entry, &more)) break;
  }
  if (!more && kw_store_read_failure(hub->store) == KW_OK) return kw_store_revision(hub->store);
  *reached = cursor.next.main > from ? cursor.next.main : from;
  return 0;
}

static void place(kw_hub *hub, kw_watcher *watcher, int64_t covered) {
  kw_watch_group_remove(hub->behind, watcher);
  if (watcher->is_unreadable) {
    enter_lagging(hub, watcher);
    fail_corrupt(hub, watcher);
    return;
  }
  if (watcher->was_refused) {
    enter_waiting(hub, watcher);
    return;
  }
  if (watcher->next_rev <= covered) watcher->next_rev = covered + 1;
  if (watcher->next_rev > kw_store_revision(hub->store)) {
    enter_synced(hub, watcher);
  } else {
    enter_lagging(hub, watcher);
  }
}

/* 1. Some that lag are chosen. 2. One walk gathers what concerns them. 3. They are told. 4. Each goes to where it
 * belongs now. Who begins behind a damaged record is brought up by a later walk, without those who need that record. */
static void catch_up(kw_hub *hub) {
  if (hub->chosen == NULL) {
    hub->chosen = kw_alloc(hub->options.walk_watchers * sizeof *hub->chosen);
    if (hub->chosen == NULL) return;
  }
  hub->n_chosen = 0;
  int64_t from = choose_near(hub);
  if (hub->n_chosen == 0) return;
  int64_t reached = from;
  int64_t covered = walk_from(hub, from, &reached);
  bool is_corrupt = covered == 0 && kw_store_read_failure(hub->store) == KW_ERR_CORRUPT;
  for (size_t i = 0; i < hub->n_chosen; i++) {
    hub->chosen[i]->was_refused = false;
    hub->chosen[i]->is_unreadable = is_corrupt && hub->chosen[i]->next_rev <= reached;
    if (covered > 0) tell(hub, hub->chosen[i]);
  }
  kw_walk_reset(&hub->walk);
  for (size_t i = 0; i < hub->n_chosen; i++) place(hub, hub->chosen[i], covered);
}

/* }====== */

/* {====== Watchers and outlets ====== */

kw_hub *kw_hub_new(kw_store *store, const kw_hub_options *options) {
  kw_hub *hub = kw_alloc(sizeof *hub);
  if (hub == NULL) return NULL;
  *hub = (kw_hub){.store = store, .options = *options, .walk = {.store = store}};
  hub->synced = kw_watch_group_new(options->seed);
  hub->behind = kw_watch_group_new(options->seed);
  if (hub->synced != NULL && hub->behind != NULL) {
    kw_store_set_hook(store, (kw_store_hook){on_visible, on_replace, hub});
    return hub;
  }
  if (hub->synced != NULL) kw_watch_group_free(hub->synced);
  if (hub->behind != NULL) kw_watch_group_free(hub->behind);
  kw_free(hub);
  return NULL;
}

void kw_hub_open_outlet(kw_hub *hub, kw_outlet *outlet, kw_ready *ready, size_t max_bytes,
                        bool with_ids) {
  *outlet = (kw_outlet){.hub = hub, .ready = ready, .max_bytes = max_bytes, .with_ids = with_ids};
  outlet->next = hub->outlets;
  outlet->prev = &hub->outlets;
  if (hub->outlets != NULL) hub->outlets->prev = &outlet->next;
  hub->outlets = outlet;
}

void kw_outlet_close(kw_outlet *outlet) {
  kw_hub *hub = outlet->hub;
  if (hub == NULL) return;
  kw_outlet_drop_items(outlet); /* first: nobody has to be looked for in it */
  while (outlet->only != NULL ||
         outlet->ids.n > 0) { /* a removal may hide a watcher from one round */
    kw_watcher *watcher;
    size_t at = 0;
    while ((watcher = outlet_next(outlet, &at)) != NULL) kw_hub_cancel(hub, watcher);
  }
  remove_ready(outlet);
  *outlet->prev = outlet->next;
  if (outlet->next != NULL) outlet->next->prev = outlet->prev;
  kw_map_drop(&outlet->ids);
  outlet->hub = NULL;
}

void kw_hub_free(kw_hub *hub) {
  while (hub->outlets != NULL) kw_outlet_close(hub->outlets);
  kw_store_set_hook(hub->store, (kw_store_hook){0});
  kw_watch_group_free(hub->synced);
  kw_watch_group_free(hub->behind);
  kw_walk_drop(&hub->walk);
  kw_map_drop(&hub->progress);
  kw_free(hub->chosen);
  kw_free(hub);
}

kw_watcher *kw_outlet_find(const kw_outlet *outlet, int64_t id) {
  return outlet->with_ids ? kw_map_get(&outlet->ids, (uint64_t)id) : outlet->only;
}

/* An id that was asked for must be free; one that is chosen was never used before. */
static int take_id(kw_outlet *outlet, int64_t *id) {
  if (*id != 0) return kw_outlet_find(outlet, *id) == NULL ? KW_OK : KW_ERR_DUPLICATE_WATCH_ID;
  while (kw_outlet_find(outlet, outlet->next_id) != NULL) outlet->next_id++;
  *id = outlet->next_id++;
  return KW_OK;
}

/* With what the group and the maps take for it. */
static size_t watcher_size(const kw_range *range) {
  return sizeof(kw_watcher) + 2 * (range->key.len + range->end.len) + PLACE_BYTES;
}

static kw_watcher *watcher_new(const kw_watch_spec *spec, kw_slice key) {
  kw_slice end = spec->range.end;
  if (key.len > UINT32_MAX || end.len > UINT32_MAX) return NULL;
  kw_watcher *watcher = kw_alloc(sizeof *watcher + key.len + end.len);
  if (watcher == NULL) return NULL;
  *watcher = (kw_watcher){.next_rev = spec->start_revision,
                          .no_put = spec->no_put,
                          .no_delete = spec->no_delete,
                          .prev_kv = spec->prev_kv,
                          .progress = spec->progress,
                          .fragment = spec->fragment,
                          .key_len = (uint32_t)key.len,
                          .end_len = (uint32_t)end.len};
  memcpy(watcher->bytes, key.data, key.len);
  if (end.len > 0) memcpy(watcher->bytes + key.len, end.data, end.len);
  return watcher;
}

/* Finds the first place of a new watcher; false if memory is short. */
static bool begin(kw_hub *hub, kw_watcher *watcher) {
  int64_t now = kw_store_revision(hub->store);
  if (watcher->next_rev > 0 && watcher->next_rev <= now) {
    enter_lagging(hub, watcher);
    return true;
  }
  watcher->begins_later = watcher->next_rev > now;
  if (watcher->next_rev == 0) watcher->next_rev = now + 1;
  watcher->state = KW_WATCHER_SYNCED;
  return kw_watch_group_add(hub->synced, watcher);
}

static bool reserve(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec) {
  return (!outlet->with_ids || kw_map_reserve(&outlet->ids)) &&
         (!spec->progress || kw_map_reserve(&hub->progress));
}

int kw_hub_watch(kw_hub *hub, kw_outlet *outlet, const kw_watch_spec *spec, kw_watcher **result) {
  kw_slice key = spec->range.key.len == 0 ? kw_slice_of("\0", 1) : spec->range.key;
  kw_range range = {.key = key, .end = spec->range.end};
  int64_t id = spec->id;
  if (spec->start_revision < 0) return KW_ERR_COMPACTED;
  if (!kw_range_contains(&range, key)) return KW_ERR_EMPTY_RANGE;
  if (outlet->account != NULL && !kw_account_ask(outlet->account, watcher_size(&range)))
    return KW_ERR_TOO_MANY_REQUESTS;
  if (!reserve(hub, outlet, spec)) return KW_ERR_NO_MEMORY;
  int rc = outlet->with_ids ? take_id(outlet, &id) : KW_OK;
  if (rc != KW_OK) return rc;
  kw_watcher *watcher = watcher_new(spec, key);
  if (watcher == NULL || !begin(hub, watcher)) {
    kw_free(watcher);
    return KW_ERR_NO_MEMORY;
  }
  watcher->id = id;
  watcher->outlet = outlet;
  if (outlet->with_ids) {
    kw_map_put(&outlet->ids, (uint64_t)id, watcher);
  } else {
    outlet->only = watcher;
  }
  if (watcher->state == KW_WATCHER_LAGGING) {
    kw_outlet_forget_progress_all(outlet); /* true of the others alone */
    unblock(outlet);
  }
  if (spec->progress && hub->progress.n == 0) hub->progress_due = INT64_MIN;
  if (spec->progress) kw_map_put(&hub->progress, (uint64_t)(uintptr_t)watcher, watcher);
  kw_account_charge(outlet->account, watcher_size(&range));
  hub->n++;
  *result = watcher;
  return KW_OK;
}

void kw_hub_cancel(kw_hub *hub, kw_watcher *watcher) {
  kw_outlet *outlet = watcher->outlet;
  leave(hub, watcher);
  kw_outlet_forget(outlet, watcher);
  unblock(outlet);
  if (outlet->with_ids) {
    kw_map_remove(&outlet->ids, (uint64_t)watcher->id);
  } else {
    outlet->only = NULL;
  }
  if (watcher->progress) kw_map_remove(&hub->progress, (uint64_t)(uintptr_t)watcher);
  kw_range range = kw_watcher_range(watcher);
  kw_account_credit(outlet->account, watcher_size(&range));
  kw_free(watcher);
  hub->n--;
}

bool kw_outlet_take(kw_outlet *outlet, kw_item *item) {
  if (!kw_outlet_pop(outlet, item)) return false;
  unblock(outlet);
  return true;
}

/* }====== */

/* {====== Progress ====== */

/* Whether everything up to the store's revision has been told or queued. */
static bool is_up_to_date(const kw_hub *hub, const kw_watcher *watcher) {
  if (watcher->state != KW_WATCHER_SYNCED) return false;
  return !kw_watcher_is_early(watcher, kw_store_revision(hub->store));
}

static bool offer_progress(kw_hub *hub, kw_outlet *outlet, kw_watcher *watcher) {
  kw_item item = {
      .kind = KW_ITEM_PROGRESS, .watcher = watcher, .revision = kw_store_revision(hub->store)};
  if (!kw_outlet_offer(outlet, &item)) return false;
  make_ready(outlet);
  return true;
}

bool kw_hub_progress(kw_hub *hub, kw_watcher *watcher) {
  return is_up_to_date(hub, watcher) && offer_progress(hub, watcher->outlet, watcher);
}

bool kw_hub_progress_all(kw_hub *hub, kw_outlet *outlet) {
  size_t at = 0, n = 0;
  for (kw_watcher *w = outlet_next(outlet, &at); w != NULL; w = outlet_next(outlet, &at), n++) {
    if (!is_up_to_date(hub, w)) return false;
  }
  return n > 0 && offer_progress(hub, outlet, NULL);
}

/* A part of a round over all that want progress; who was told of an event since the last round needs none. */
static void progress_round(kw_hub *hub, int64_t now) {
  if (hub->progress_due == INT64_MIN) {
    hub->progress_due = now + hub->options.progress_ms;
    return;
  }
  for (size_t i = 0; i < PROGRESS_PER_STEP; i++) {
    kw_watcher *watcher = kw_map_next(&hub->progress, &hub->progress_at);
    if (watcher == NULL) {
      hub->progress_at = 0;
      hub->progress_due = now + hub->options.progress_ms;
      return;
    }
    if (!watcher->was_told) kw_hub_progress(hub, watcher);
    watcher->was_told = false;
  }
}

/* }====== */

int64_t kw_hub_deadline(const kw_hub *hub) {
  if (hub->lagging.first != NULL) return INT64_MIN;
  int64_t deadline = kw_store_deadline(hub->store);
  if (hub->progress.n > 0 && hub->progress_due < deadline) deadline = hub->progress_due;
  return deadline;
}

bool kw_hub_step(kw_hub *hub, int64_t now) {
  bool more = kw_store_step(hub->store, now);
  if (hub->lagging.first != NULL) catch_up(hub);
  if (hub->progress.n > 0 && hub->progress_due <= now) progress_round(hub, now);
  bool is_progress_due = hub->progress.n > 0 && hub->progress_due <= now;
  return more || hub->lagging.first != NULL || is_progress_due;
}

#ifdef KW_PROBE

/* Every watcher stands where its state says, and nowhere else. */
const char *kw_hub_check(const kw_hub *hub) {
  size_t n = 0, synced = 0, lagging = 0;
  const char *fault = kw_watch_group_check(hub->synced);
  if (fault != NULL) return fault;
  for (const kw_watcher *w = hub->lagging.first; w != NULL; w = w->next) lagging++;
  for (const kw_outlet *outlet = hub->outlets; outlet != NULL; outlet = outlet->next) {
    size_t at = 0, queued = 0, blocked = 0;
    for (const kw_watcher *w = outlet->blocked.first; w != NULL; w = w->next) blocked++;
    for (const kw_watcher *w = outlet_next(outlet, &at); w != NULL;
         w = outlet_next(outlet, &at), n++) {
      if ((w->state == KW_WATCHER_SYNCED) != (w->slot != NULL))
        return "a watcher in the wrong place";
      synced += w->state == KW_WATCHER_SYNCED;
      lagging -= w->state == KW_WATCHER_LAGGING;
      blocked -= w->state == KW_WATCHER_BLOCKED;
      queued += w->queued;
    }
    if (blocked != 0) return "the blocked watchers of an outlet are wrong";
    if (queued + outlet->progress_all != outlet->n) return "the items of an outlet are wrong";
    if ((fault = kw_outlet_check(outlet)) != NULL) return fault;
    const kw_watcher *waits = outlet->blocked.first;
    if (waits != NULL && kw_outlet_has_room(outlet, waits, 0))
      return "a watcher is blocked, and nothing will let it go on";
  }
  if (lagging != 0) return "the lagging watchers are wrong";
  if (synced != kw_watch_group_count(hub->synced)) return "the synced watchers are wrong";
  if (kw_watch_group_count(hub->behind) != 0) return "a step has left something behind";
  return n == hub->n ? NULL : "the number of watchers is wrong";
}

#endif
