/* SPDX-License-Identifier: MIT
 *
 * notes: a server's entries for the log: connections that are rejected or cannot be accepted; and, for a debug log,
 * connections that begin and end, requests that are refused, and slow requests.
 *
 * Notes wait in a ring buffer until Lua takes them. When the ring buffer is full, the oldest note is dropped and
 * counted, so a flood of refused requests takes no more memory than a few of them. Unless a server is configured to
 * take all notes, it takes only those of rejected connections, and each other place that could make a note costs one
 * branch.
 *
 * That the trouble of the store has changed is no note of the ring buffer: it is found when notes are taken, and is
 * never dropped.
 *
 * Paths and texts are copied as they came from the client, cut to their limits: the reader escapes them.
 */
#ifndef KW_RPC_NOTES_H
#define KW_RPC_NOTES_H

#include "h2/stream.h"
#include "rpc/server.h"

#define KW_NOTES 256     /* notes that wait at most, of a server that takes all */
#define KW_FEW_NOTES 16  /* the same of a server that notes only rejected connections */
#define KW_NOTE_PATH 160 /* bytes of a path; more are cut off */
#define KW_NOTE_TEXT 768 /* bytes of a text; more are cut off */
#define KW_SLOW_MS 100   /* a unary request that takes longer is slow */

typedef enum kw_note_kind {
  KW_NOTE_ACCEPTED, /* a connection: remote */
  KW_NOTE_ENDED,    /* a connection: remote, text */
  KW_NOTE_REJECTED, /* a connection that has ended before it spoke HTTP/2: remote, text */
  KW_NOTE_LACK,     /* connections cannot be accepted: text */
  KW_NOTE_REFUSED, /* a request that ended with an error: remote, path, status, text, amount in ms */
  KW_NOTE_SLOW, /* a request, with status CANCELLED if it got no answer: remote, path, status, amount in ms */
  KW_NOTE_LOST,   /* notes were dropped here: amount */
  KW_NOTE_TROUBLE /* what does not work in the store has changed, see kw_store_trouble */
} kw_note_kind;

typedef struct kw_note {
  kw_note_kind kind;
  int status; /* kw_grpc_status */
  int64_t amount;
  size_t n_path;
  size_t n_text;
  char remote[KW_REMOTE_TEXT]; /* address of the client; or "" */
  uint8_t path[KW_NOTE_PATH];  /* empty for a request that had none, or that memory was short for */
  uint8_t text[KW_NOTE_TEXT];
} kw_note;

/* The server takes all notes from now on. Called before the first connection. False if memory is short. */
bool kw_notes_start(kw_server *server);

/* Moves the oldest note to *note. False if there is none. */
bool kw_notes_next(kw_server *server, kw_note *note);

/* True if a note waits to be taken. */
bool kw_notes_wait(const kw_server *server);

/* For the driver: the function `lack` of kw_engine. */
void kw_notes_lack(kw_server *server, const char *why);

/* {====== For this folder ====== */

/* Frees the notes of a server. */
void kw_notes_free(kw_server *server);

/* Makes the note of a connection that is rejected, for the reason `why`. Without memory there is none. */
void kw_notes_rejected(kw_server *server, const char *remote, const char *why);

/* }====== */

/* {====== For this folder, if server->takes_notes is set ====== */

/* Makes the note of a connection that was accepted. */
void kw_notes_accepted(kw_server *server, const char *remote);

/* Makes the note of a connection that has ended, for the reason `why`. */
void kw_notes_ended(kw_server *server, const char *remote, const char *why);

/* Notes that a request begins: its path is known. Without memory its note will have neither path nor time. */
void kw_notes_open(kw_server *server, const kw_stream *stream, kw_slice path);

/* Notes that the message of a request has arrived: the time of a unary request begins here, unless Lua has intercepted
 * it, in which case it began with kw_notes_open. */
void kw_notes_arrived(kw_server *server, const kw_stream *stream);

/* Makes the note of a request that has got its status, if it was refused or slow and has no note yet. Calls that Lua
 * answers are left to kw_notes_close: the server's time is too old while Lua runs. */
void kw_notes_answered(const kw_peer *peer, const kw_stream *stream);

/* Makes the note of a request whose stream closes, if it was refused or slow and has no note yet; and forgets the
 * request. */
void kw_notes_close(const kw_peer *peer, const kw_stream *stream);

/* }====== */

#endif
