/* SPDX-License-Identifier: MIT */
#include "watches.h"

#include "codec/keyvalue.h"
#include "codec/wire.h"
#include "model/error.h"

enum { SMALL = 3000, LARGE = 100000 }; /* bytes that may wait in a watch */
enum {
  HOW_RANGE = 1,
  HOW_PREV = 2,
  HOW_NO_PUT = 4,
  HOW_NO_DELETE = 8,
  HOW_LARGE = 16,
  HOW_PROGRESS = 32
};
enum { HOW_ARM = 1, HOW_FOLLOW = 2, HOW_ACCEPT = 4, HOW_FAIL = 8, HOW_REVIVE = 16 };

static watched *pick_watch(watches *w, script_line *line) {
  return &w->list[(uint64_t)line_number(line) % MAX_WATCHES];
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* {====== What is taken ====== */

static int64_t revision_of(kw_slice event) {
  kw_wire_reader reader = kw_wire_read(event);
  kw_wire_field field;
  kw_kv kv = {0};
  while (kw_wire_next(&reader, &field)) {
    if (field.number == 2) must(kw_keyvalue_decode(field.bytes, &kv), "an event has a kv");
  }
  must(!reader.failed, "an event can be read");
  return kv.mod_revision;
}

/* One piece of an answer; `before` is what was given before the answer. */
static void take_piece(watched *one, const kw_notice *news, int64_t before) {
  kw_wire_reader reader = kw_wire_read(kw_blob_slice(news->bytes));
  kw_wire_field field;
  uint32_t n = 0;
  while (kw_wire_next(&reader, &field)) {
    if (field.number != 11) continue;
    int64_t revision = revision_of(field.bytes);
    n++;
    if (revision < news->revision || (news->until != 0 && revision >= news->until)) continue;
    must(revision > before && revision >= one->told, "events rise");
    must(revision > one->covered, "no event comes after progress that covers it");
    must(revision < one->sub.next, "what was given is behind");
    one->told = revision;
  }
  one->passed = larger(one->passed, news->until);
  must(!reader.failed && n == news->n, "all events are counted");
}

static void take_events(watched *one, const kw_notice *news) {
  int64_t before = larger(one->told, one->begin - 1);
  take_piece(one, news, before);
  while (news->has_more) {
    must(news->link.next != &one->sub.notices, "an answer is complete");
    news = KW_CONTAINER_OF(news->link.next, kw_notice, link);
    must(news->kind == KW_NOTICE_EVENTS, "nothing stands in the middle of an answer");
    take_piece(one, news, before);
  }
}

static void take_progress(watched *one, int64_t revision) {
  int64_t known = larger(one->covered, one->told);
  must(one->sub.progress ? revision >= known : revision > known, "progress goes on");
  must(revision < one->sub.next, "progress is behind");
  one->covered = revision;
}

static void take(watches *w, watched *one, uint64_t n) {
  const kw_notice *news;
  while (n-- > 0 && (news = kw_subscription_first(&one->sub)) != NULL) {
    must(!one->has_failed, "a failure is the last");
    w->n_events += news->kind == KW_NOTICE_EVENTS;
    switch (news->kind) {
      case KW_NOTICE_EVENTS: take_events(one, news); break;
      case KW_NOTICE_PROGRESS: take_progress(one, news->revision); break;
      default: one->has_failed = true; break;
    }
    kw_subscription_skip(&one->sub);
  }
}

/* }====== */

/* {====== Steps ====== */

static void make(watched *one, int64_t start, int how) {
  kw_range range = {.key = kw_slice_of("k", 1), .end = kw_slice_of("l", how & HOW_RANGE ? 1 : 0)};
  *one = (watched){.is_open = true};
  if (!kw_subscription_init(&one->sub, &range, how & HOW_LARGE ? LARGE : SMALL)) {
    kw_subscription_drop(&one->sub);
    one->is_open = false;
  }
  one->begin = one->next = one->sub.next = start < 0 || start == INT64_MAX ? 0 : start;
  one->sub.prev_kv = how & HOW_PREV;
  one->sub.progress = how & HOW_PROGRESS;
  one->sub.no_put = how & HOW_NO_PUT;
  one->sub.no_delete = how & HOW_NO_DELETE;
}

static void attach(watched *one, kw_client *client, script_line *line) {
  kw_watch_call *call = kw_watch_call_find(client, (uint64_t)line_number(line));
  int64_t start = line_number(line);
  if (!one->is_open) make(one, start, line_flags(line));
  if (!one->is_open || call == NULL || one->sub.state != KW_SUBSCRIPTION_IDLE) return;
  kw_watch_call_attach(call, &one->sub);
}

static void set(watched *one, int how) {
  one->sub.announces_progress = how & HOW_FOLLOW;
  if (how & HOW_ACCEPT) kw_subscription_validate(&one->sub);
  if (how & HOW_REVIVE) kw_subscription_revive(&one->sub);
  if (how & HOW_ARM) one->sub.is_armed = true;
  kw_watch_call_wake(&one->sub);
  if (!(how & HOW_FAIL)) return;
  kw_watch_call_detach(&one->sub);
  kw_subscription_fail(&one->sub, 0, (kw_slice){0}, KW_ERR_REGRESSED);
}

static void drop(watched *one) {
  if (!one->is_open) return;
  kw_watch_call_drop(&one->sub);
  must(one->sub.call == NULL && kw_link_is_alone(&one->sub.ready), "it has left");
  must(one->sub.bytes == 0 && one->sub.events == 0 && one->sub.pieces == 0, "nothing waits");
  one->is_open = false;
}

bool watches_do(watches *w, kw_client *client, char letter, script_line *line) {
  if (strchr("ndkva", letter) == NULL) return false;
  watched *one = pick_watch(w, line);
  if (letter == 'n') {
    attach(one, client, line);
  } else if (one->is_open) {
    switch (letter) {
      case 'd': kw_watch_call_detach(&one->sub); break;
      case 'k': take(w, one, (uint64_t)line_number(line)); break;
      case 'v': drop(one); break;
      case 'a': set(one, line_flags(line)); break;
    }
  }
  return true;
}

void watches_hear(watches *w, kw_client *client) {
  kw_link *ready = kw_client_ready_watches(client);
  while (!kw_link_is_alone(ready)) {
    watched *one = KW_CONTAINER_OF(ready->next, watched, sub.ready);
    must(one >= w->list && one < w->list + MAX_WATCHES && one->is_open, "it is one of ours");
    kw_link_remove(&one->sub.ready);
  }
}

/* }====== */

/* {====== What holds ====== */

static void check_queue(const kw_subscription *sub) {
  size_t pieces = 0, events = 0, torn = 0;
  for (const kw_link *at = sub->notices.next; at != &sub->notices; at = at->next) {
    const kw_notice *news = KW_CONTAINER_OF(at, kw_notice, link);
    pieces++;
    events += news->n;
    torn = news->has_more ? torn + 1 : 0;
  }
  must(pieces == sub->pieces && events == sub->events, "what waits is counted");
  must(torn == sub->unfinished, "what is not complete is counted");
  must((pieces == 0) == (sub->bytes == 0), "nothing has no bytes");
  must(sub->torn <= MAX_TORN + sizeof(kw_notice) + 64 * sub->events, "pieces are bounded");
}

static void check_state(const watched *one) {
  const kw_subscription *sub = &one->sub;
  bool is_on = sub->state == KW_SUBSCRIPTION_CREATING || sub->state == KW_SUBSCRIPTION_OPEN;
  must(is_on == (sub->call != NULL), "it is on a call, or not");
  must(is_on || sub->unfinished == 0, "what is torn ends with the call");
  must((sub->asked != NULL) == (sub->state == KW_SUBSCRIPTION_CREATING), "it is asked for once");
  if (one->has_failed)
    must(sub->state == KW_SUBSCRIPTION_FAILED && sub->pieces == 0, "a failure is the last");
}

/* What a server in doubt has told may be retracted. */
static void check_next(watched *one) {
  const kw_subscription *sub = &one->sub;
  int64_t sure = sub->is_suspect ? sub->sure_next : sub->next;
  must(sure >= one->next && sub->next >= sure, "where it goes on never goes back");
  one->next = sure;
  if (one->begin == 0) one->begin = sub->next; /* known from the answer to the creation */
  if (sub->pieces > 0 || one->has_forgotten) return;
  int64_t given = larger(larger(one->told, one->covered) + 1, one->passed);
  must(sub->next <= larger(given, one->begin), "it goes on after what was given");
}

void watches_check(watches *w, bool is_starved) {
  for (size_t i = 0; i < MAX_WATCHES; i++) {
    watched *one = &w->list[i];
    if (!one->is_open) continue;
    one->has_forgotten = one->has_forgotten || is_starved;
    w->n_opened += one->sub.state == KW_SUBSCRIPTION_OPEN;
    check_queue(&one->sub);
    check_state(one);
    check_next(one);
  }
}

/* }====== */

void watches_drop(watches *w, int which) {
  for (size_t i = 0; i < MAX_WATCHES; i++) {
    if ((i & 1) == (size_t)which) drop(&w->list[i]);
  }
}
