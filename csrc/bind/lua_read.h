/* SPDX-License-Identifier: MIT
 *
 * lua_read: ranges that are read in several turns, for tasks: see lua/keywatch/store/turns.lua, and
 * lua/keywatch/watch/local_origin.lua.
 *
 *   store:try_range(key, options)   -> as store:range; or false if the range needs more than the work of a turn
 *   store:try_page(key, options, list)
 *                                   -> as try_range. The kvs are in the list: its tables are used again
 *   store:open_read(key, options)   -> a read, which has done nothing yet
 *   store:read_more(list, read, is_whole)
 *                                   adds the next kvs to the list, with is_whole all. Tables that the list has from
 *                                   the beginning are used again
 *                                   -> the result, as that of store:range, whose kvs are the list; or false: it is not
 *                                   done. A second value `true`: the read has begun again, and needs an empty
 *                                   list
 *   read:close()                    frees what the read holds
 *
 * All fail with nil and an error. read_more of a closed store fails with the code "closed". Between its turns a read
 * holds nothing of the store: it reads at its revision. If a compaction passes that revision, the read begins again at
 * the newest one, unless its caller has asked for the revision.
 */
#ifndef KW_BIND_LUA_READ_H
#define KW_BIND_LUA_READ_H

#include "face/compat.h"

/* Makes the class of reads. */
void kw_bind_add_read_class(lua_State *L);

#endif
