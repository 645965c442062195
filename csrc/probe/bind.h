/* SPDX-License-Identifier: MIT
 *
 * bind: the table `probe` of keywatch.core in builds for tests: functions that check invariants, and let allocations
 * fail.
 *
 * The table core.probe has, beside the functions added below,
 *   check(store)           raises if an invariant of the store or its hub is broken
 *   fail_core(n)           the n-th allocation of core from now on fails, and only that one; 0: none
 *   fail_all(n)            the n-th allocation of core or Lua from now on and all later ones fail; 0: none
 *   fail_none()            ends both
 *   collect_at(n, every)   a collection is due at the n-th allocation of Lua; at once if n is 0. With `every`, another
 *                          one is due after each `every` allocations more
 *   collect_never()        ends that. Returns true if the collection of collect_at(n) has not become due
 *   allocations()          returns the number of allocations of this thread so far
 *   hash_visits()          returns the number of slots of hash tables that this thread has visited so far
 *   snapshot_waits()       returns how often a store has waited for the thread of a snapshot
 *   live()                 returns the number of blocks of all threads that are not freed yet */
#ifndef KW_PROBE_BIND_H
#define KW_PROBE_BIND_H

#include "bind/lua_store.h"

/* Returns the store at stack index `arg`. Raises if the value there is not an open store. */
kw_lua_store *kw_bind_check_store(lua_State *L, int arg);

/* Adds these functions to the table on top of the stack:
 *   recode(name, bytes, how)   decodes a message and encodes it again: the bytes, or nil and an error. `how`: "whole";
 *                              "rest", without the header; "bare", without values, for a RangeResponse
 *   split(max_len, pieces)     splits gRPC frames: the messages; how the splitter ended; how many bytes are missing;
 *                              how many are buffered
 *   escape(text)               the text as a grpc-message
 *   unescape(text)             the text of a grpc-message
 *   timeout(text)              the milliseconds of a grpc-timeout, or -1 */
void kw_bind_add_probe_codec(lua_State *L);

/* Adds check_server(server) and check_client(client) to the table on top of the stack. They raise if an invariant is
 * broken. */
void kw_bind_add_probe_connection(lua_State *L);

/* Adds these functions to the table on top of the stack. Those of a store raise if it is not durable.
 *   hold_disk(store, hold)          while held, commit groups are submitted but not written
 *   hold_checkpoints(store, hold)   while held, commit groups become durable in the journal alone
 *   fail_disk(store, how)           the next commit group fails. "no_space" and "no_memory": before anything was
 *                                   written; "storage": the outcome is unknown
 *   flush_disk(store)               submits the committed writes if the disk is idle. Does not wait
 *   set_bell(store, is_there)       gives the store a bell, or none; returns how many references to it are held
 *   pauses(writes, back...)         groups of `writes` writes become durable, and `back` writers come back after each:
 *                                   returns for each group whether a pause follows it */
void kw_bind_add_probe_disk(lua_State *L);

/* Pushes a table with these functions. Those that can fail return nil and an error. A change is a list of its kind and
 * its arguments:
 *   { "put", main, sub, tombstone, record }, { "remove", main, sub, tombstone }, { "put_lease", id, ttl },
 *   { "remove_lease", id }, { "put_row", name, bytes }, { "remove_row", name }
 *
 *   open(path, options)    a journal. Options: store_id, epoch, segment_bytes
 *   recover(path, options) what the journal has: has_files, groups, sequence, revision, compact_revision,
 *                          compacted_until, alarms and changes. Options: store_id, epoch, applied, is_closed (1: true)
 *   skip_flush(skip)       while true, journals leave out the flush
 *
 * A journal has these methods:
 *   append(sequence, changes, meta)   true. `meta` may have revision, compact_revision, compacted_until and alarms
 *   append_beside(first, last, len)   the number of groups that were appended, each with a record of `len` bytes, while
 *                                     another thread releases them when the journal is filling; or nil and an error
 *   release(sequence), is_filling(), frame_bytes(changes), close() */
void kw_bind_push_probe_journal(lua_State *L);

/* Pushes a table with these HTTP/1.1 functions:
 *   first_bytes(bytes)     "unknown", "http1", "http2", "tls" or "foreign"
 *   date(seconds)          the time as the field date has it
 *   segments(path)         the segments of a path, decoded; or nil and why the path is refused
 *   parameters(path)       the parameters of its query, as a list of decoded names and values
 *   connection(options)    a connection. Options: those of kw_http_options by name; echo: requests are answered with
 *                          their body; refuse: at once, with this status; pause: on_request pauses; switch: to the
 *                          protocol that is offered; turn: requests in a turn; budget: bytes for the connection;
 *                          date: a text
 *
 * A connection has these methods. Times are milliseconds; in most cases true means that the engine has taken a call:
 *   feed(bytes, now), flush(now), step(now), drain(ms, now), stop(why), check()
 *   take(max, now)         at most so many bytes of the output, as if the socket had taken them
 *   events()               the calls of hooks since the last time, one text each; parts of a body are joined
 *   state()                wants_bytes, is_done, why, deadline or nil, bytes of memory, bytes of output
 *   request(r), answer(a)  fields: a list of names and values
 *   write(bytes, as_blob), finish(trailers), pause(), resume(), abort(), has_room(), is_unanswered(), limit(max_body),
 *   free() */
void kw_bind_push_probe_http(lua_State *L);

/* Pushes the function stream(store, max_bytes), which returns an object with these methods:
 *   watch(key, options, id)   the id of the watcher, or nil and an error
 *   cancel(id)                true if there was such a watcher
 *   progress(id)              queues progress for one watcher, without an id for all: true if it was queued
 *   take()                    kind, id (nil: for all), revision, and the keys of the events; nothing if the queue is
 *   empty close() */
void kw_bind_push_probe_stream(lua_State *L);

#endif
