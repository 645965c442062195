/* SPDX-License-Identifier: MIT
 *
 * lua_read: reads a range in several turns, for tasks. Used by lua/keywatch/store/turns.lua and
 * lua/keywatch/watch/local_origin.lua.
 *
 *   store:try_range(key, options)   -> the result of store:range; or false if one turn is not enough for the range
 *   store:try_page(key, options, list)
 *                                   -> like try_range; the kvs of the result are the list, and reuse its tables
 *   store:open_read(key, options)   -> a read that has not visited any key
 *   store:read_more(list, read, is_whole)
 *                                   adds the kvs of one turn to the list; with is_whole, all that are left. Reuses the
 *                                   tables that were in the list before the first call
 *                                   -> the result of store:range, whose kvs are the list; or false if the read is not
 *                                   done; or false, true if the read has restarted: the next call needs an empty list
 *   read:close()                    frees the memory of the read
 *
 * The methods of the store return nil and an error if they fail. read_more of a closed store fails with the code
 * "closed". Other writes may change the store between two turns: the read continues at its own revision. If that
 * revision was compacted, the read restarts at the newest revision. If the caller has requested the revision, read_more
 * fails with the code "compacted" instead.
 */
#ifndef KW_BIND_LUA_READ_H
#define KW_BIND_LUA_READ_H

#include "face/compat.h"

/* Creates the class of reads. */
void kw_bind_add_read_class(lua_State *L);

#endif
