/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "rpc/notes.h"

#include "base/mem.h"
#include "rpc/service.h"

/* An open request, by the address of its stream. */
typedef struct request {
  int64_t since; /* when its message arrived; until then, when its headers arrived */
  bool is_noted;
  size_t n_path;
  uint8_t path[KW_NOTE_PATH];
} request;

typedef struct kw_notes {
  size_t cap;   /* limit of notes in the ring buffer */
  size_t first; /* position of the oldest note */
  size_t n;
  int64_t lost; /* notes that were dropped before the oldest */
  kw_map requests;
  kw_note ring[];
} kw_notes;

/* Makes the ring buffer, if there is none. Returns false if memory is short. */
static bool reserve(kw_server *server, size_t cap) {
  if (server->notes != NULL) return true;
  server->notes = kw_alloc_zeroed(sizeof *server->notes + cap * sizeof(kw_note));
  if (server->notes == NULL) return false;
  server->notes->cap = cap;
  return true;
}

bool kw_notes_start(kw_server *server) {
  if (!reserve(server, KW_NOTES)) return false;
  server->takes_notes = true;
  return true;
}

void kw_notes_free(kw_server *server) {
  request *r;
  size_t at = 0;
  if (server->notes == NULL) return;
  while ((r = kw_map_next(&server->notes->requests, &at)) != NULL) kw_free(r);
  kw_map_drop(&server->notes->requests);
  kw_free(server->notes);
  server->notes = NULL;
}

/* {====== The ring buffer ====== */

static size_t copy(uint8_t *to, size_t cap, kw_slice from) {
  size_t n = kw_min_size(from.len, cap);
  if (n > 0) memcpy(to, from.data, n);
  return n;
}

static kw_note *add(kw_notes *notes, kw_note_kind kind, const char *remote) {
  if (notes->n == notes->cap) {
    notes->first = (notes->first + 1) % notes->cap;
    notes->n--;
    notes->lost++;
  }
  kw_note *note = &notes->ring[(notes->first + notes->n++) % notes->cap];
  note->kind = kind;
  note->status = 0;
  note->amount = 0;
  note->n_path = note->n_text = 0;
  snprintf(note->remote, sizeof note->remote, "%s", remote);
  return note;
}

static bool has_notes(const kw_server *server) {
  return server->notes != NULL && server->notes->n > 0;
}

static unsigned trouble_of(const kw_server *server) {
  return server->store == NULL ? server->trouble : kw_store_trouble(server->store);
}

bool kw_notes_wait(const kw_server *server) {
  return has_notes(server) || trouble_of(server) != server->trouble;
}

bool kw_notes_next(kw_server *server, kw_note *note) {
  kw_notes *notes = server->notes;
  unsigned trouble = trouble_of(server);
  if (trouble != server->trouble) {
    server->trouble = trouble;
    *note = (kw_note){.kind = KW_NOTE_TROUBLE};
    return true;
  }
  if (!has_notes(server)) return false;
  if (notes->lost > 0) {
    *note = (kw_note){.kind = KW_NOTE_LOST, .amount = notes->lost};
    notes->lost = 0;
    return true;
  }
  *note = notes->ring[notes->first];
  notes->first = (notes->first + 1) % notes->cap;
  notes->n--;
  return true;
}

/* }====== */

void kw_notes_accepted(kw_server *server, const char *remote) {
  add(server->notes, KW_NOTE_ACCEPTED, remote);
}

static void add_why(kw_server *server, kw_note_kind kind, const char *remote, const char *why) {
  kw_note *note = add(server->notes, kind, remote);
  note->n_text = copy(note->text, KW_NOTE_TEXT, kw_slice_of(why, strlen(why)));
}

void kw_notes_ended(kw_server *server, const char *remote, const char *why) {
  add_why(server, KW_NOTE_ENDED, remote, why);
}

void kw_notes_rejected(kw_server *server, const char *remote, const char *why) {
  if (reserve(server, KW_FEW_NOTES)) add_why(server, KW_NOTE_REJECTED, remote, why);
}

void kw_notes_accept_failed(kw_server *server, const char *why) {
  server->counters.accept_failures++;
  if (reserve(server, KW_FEW_NOTES)) add_why(server, KW_NOTE_ACCEPT_FAILED, "", why);
}

/* {====== Requests ====== */

static request *find(const kw_server *server, const kw_stream *stream) {
  return kw_map_get(&server->notes->requests, (uintptr_t)stream);
}

void kw_notes_open(kw_server *server, const kw_stream *stream, kw_slice path) {
  kw_map *requests = &server->notes->requests;
  request *r = kw_map_reserve(requests) ? kw_alloc_zeroed(sizeof *r) : NULL;
  if (r == NULL) return;
  r->since = server->now;
  r->n_path = copy(r->path, KW_NOTE_PATH, path);
  kw_map_put(requests, (uintptr_t)stream, r);
}

void kw_notes_arrived(kw_server *server, const kw_stream *stream) {
  request *r = find(server, stream);
  bool was_intercepted = stream->proceeded_call != NULL;
  if (r != NULL && stream->is_unary && !was_intercepted) r->since = server->now;
}

static void note_request(const kw_peer *peer, const kw_stream *stream, const request *r) {
  bool is_refused = stream->has_status && stream->status != KW_GRPC_OK;
  int64_t ms = r == NULL ? 0 : peer->server->now - r->since;
  bool is_slow = stream->is_unary && ms > KW_SLOW_MS;
  if (!is_refused && !is_slow) return;
  kw_note *note = add(peer->server->notes, is_refused ? KW_NOTE_REFUSED : KW_NOTE_SLOW,
                      peer->driver.hooks.remote);
  note->status = stream->has_status ? stream->status : KW_GRPC_CANCELLED;
  note->amount = ms;
  if (r != NULL) note->n_path = copy(note->path, KW_NOTE_PATH, kw_slice_of(r->path, r->n_path));
  if (stream->text != NULL)
    note->n_text = copy(note->text, KW_NOTE_TEXT, kw_blob_slice(stream->text));
}

static bool is_of_lua(const kw_stream *stream) {
  const kw_method *method = stream->method;
  return method != NULL && method->request == NULL;
}

void kw_notes_answered(const kw_peer *peer, const kw_stream *stream) {
  if (!stream->is_finished || is_of_lua(stream)) return;
  request *r = find(peer->server, stream);
  if (r == NULL || r->is_noted) return;
  r->is_noted = true;
  note_request(peer, stream, r);
}

void kw_notes_close(const kw_peer *peer, const kw_stream *stream) {
  kw_map *requests = &peer->server->notes->requests;
  request *r = kw_map_remove(requests, (uintptr_t)stream);
  kw_map_shrink(requests, 0);
  if (r == NULL || !r->is_noted) note_request(peer, stream, r);
  kw_free(r);
}

/* }====== */
