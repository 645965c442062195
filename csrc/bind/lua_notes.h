/* SPDX-License-Identifier: MIT
 *
 * lua_notes: the notes of a server for its log, see rpc/notes.h, as methods of the server.
 *
 *   server:take_notes()    all notes are taken from now on; before, only "rejected", "accept_failed" and "trouble".
 *                          Raises if the server is closed, or memory is short
 *   server:next_note() -> kind, remote, path, status, text, amount
 *                          removes and returns the oldest note, also of a closed server; nothing if there is none.
 *                          kind: "accepted", "ended", "rejected", "accept_failed", "refused", "slow", "lost" or
 *                          "trouble"; amount: milliseconds, or the number of lost notes
 */
#ifndef KW_BIND_LUA_NOTES_H
#define KW_BIND_LUA_NOTES_H

#include "face/compat.h"

/* Adds the methods to the table on top of the stack. */
void kw_bind_add_notes(lua_State *L);

#endif
