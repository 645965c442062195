/* SPDX-License-Identifier: MIT
 *
 * notes: a server's entries for the log: connections that are rejected or cannot be accepted; and, for a debug log,
 * connections that begin and end, requests that are refused, and slow requests.
 *
 * Notes wait in a ring buffer until Lua takes them. When the ring buffer is full, the oldest note is dropped and
 * counted, so a flood of refused requests takes no more memory than a few of them. Unless kw_notes_start was called, a
 * server takes only the notes KW_NOTE_REJECTED and KW_NOTE_ACCEPT_FAILED, and the code of any other note costs one
 * branch.
 *
 * KW_NOTE_TROUBLE does not wait in the ring buffer: kw_notes_next compares kw_store_trouble with its earlier result. So
 * it is never dropped.
 *
 * Paths and texts of the client are copied without changes, cut to their limits: the reader escapes them.
 */
#ifndef KW_RPC_NOTES_H
#define KW_RPC_NOTES_H

#include "h2/stream.h"
#include "rpc/server.h"

#define KW_NOTES 256     /* limit of waiting notes of a server that takes all of them */
#define KW_FEW_NOTES 16  /* the same of any other server */
#define KW_NOTE_PATH 160 /* limit of a path, in bytes; more are cut off */
#define KW_NOTE_TEXT 768 /* limit of a text, in bytes; more are cut off */
#define KW_SLOW_MS 100   /* a unary request that takes longer is slow */

typedef enum kw_note_kind {
  KW_NOTE_ACCEPTED,      /* a connection: remote */
  KW_NOTE_ENDED,         /* a connection: remote, text */
  KW_NOTE_REJECTED,      /* a connection that has ended before it spoke HTTP/2: remote, text */
  KW_NOTE_ACCEPT_FAILED, /* connections cannot be accepted: text */
  KW_NOTE_REFUSED, /* a request that ended with an error: remote, path, status, text, amount in ms */
  KW_NOTE_SLOW, /* a request, with status CANCELLED if it got no answer: remote, path, status, amount in ms */
  KW_NOTE_LOST,   /* notes were dropped here: amount */
  KW_NOTE_TROUBLE /* kw_store_trouble has changed */
} kw_note_kind;

typedef struct kw_note {
  kw_note_kind kind;
  int status; /* kw_grpc_status */
  int64_t amount;
  size_t n_path;
  size_t n_text;
  char remote[KW_REMOTE_TEXT]; /* address of the client; or "" */
  uint8_t path[KW_NOTE_PATH];  /* empty for a request without a path, or if memory was short */
  uint8_t text[KW_NOTE_TEXT];
} kw_note;

/* The server takes all notes from now on. Called before the first connection. False if memory is short. */
bool kw_notes_start(kw_server *server);

/* Moves the oldest note to *note. False if there is none. */
bool kw_notes_next(kw_server *server, kw_note *note);

/* True if a note waits to be taken. */
bool kw_notes_wait(const kw_server *server);

/* For the driver: the function `accept_failed` of kw_engine. */
void kw_notes_accept_failed(kw_server *server, const char *why);

/* {====== For this folder ====== */

/* Frees the notes of a server. */
void kw_notes_free(kw_server *server);

/* Makes the note of a connection that is rejected, for the reason `why`; or no note, if memory is short. */
void kw_notes_rejected(kw_server *server, const char *remote, const char *why);

/* }====== */

/* {====== For this folder, if server->takes_notes is set ====== */

/* Makes the note of a connection that was accepted. */
void kw_notes_accepted(kw_server *server, const char *remote);

/* Makes the note of a connection that has ended, for the reason `why`. */
void kw_notes_ended(kw_server *server, const char *remote, const char *why);

/* Stores the path of a request that begins. If memory is short, its note will have neither path nor time. */
void kw_notes_open(kw_server *server, const kw_stream *stream, kw_slice path);

/* Called when the message of a request has arrived: the time of a unary request begins here, unless Lua has intercepted
 * it, in which case it began with kw_notes_open. */
void kw_notes_arrived(kw_server *server, const kw_stream *stream);

/* Makes the note of a request that has got its status, if it was refused or slow and has no note yet. Calls that Lua
 * answers are left to kw_notes_close: the server's time is too old while Lua runs. */
void kw_notes_answered(const kw_peer *peer, const kw_stream *stream);

/* Makes the note of a request whose stream closes, if it was refused or slow and has no note yet; and frees what
 * kw_notes_open has stored. */
void kw_notes_close(const kw_peer *peer, const kw_stream *stream);

/* }====== */

#endif
