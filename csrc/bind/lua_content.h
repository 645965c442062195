/* SPDX-License-Identifier: MIT
 *
 * lua_content: the content of a replica in a file, see disk/content.h.
 *
 *   core.content_writer(path) -> writer
 *   writer:is_done() -> boolean      false while a write runs; nil and an error if the last write has failed:
 *                                    "cancelled" if the write is that of the parent process, before a fork
 *   writer:wait() -> true            waits for the running write; nil and an error if the last write has failed
 *   writer:close()                   aborts a running write, without its file
 *
 * Methods of a replica:
 *
 *   store:write_content(writer, key, range_end, cluster, confirmed_at) -> true
 *                                    begins to write the current content, the keys of a range; nil and an error if
 *                                    the range is too long, or memory is short. Raises if the writer is not done
 *   store:hold_content(writer, most) -> boolean
 *                                    retains at most `most` keys. True once the thread of the writer writes, false if
 *                                    there are more keys; nil and an error: "compacted" if the replica no longer knows
 *                                    the content, "request_too_large" if the file would be too large. Raises if no
 *                                    write has begun, or all keys were retained
 *   store:load_content(path, key, range_end) -> cluster, confirmed_at
 *                                    loads the content of a file; nil and an error: "not_found" if there is no file
 *   store:changed_revision() -> revision
 *                                    of the last event, or of the base if there was none since
 *
 * A cluster is an id as a decimal string, and confirmed_at is a number of seconds since 1970. The texts of errors about
 * a file follow the path of the file: "is damaged".
 */
#ifndef KW_BIND_LUA_CONTENT_H
#define KW_BIND_LUA_CONTENT_H

#include "bind/lua_store.h"

/* Pushes the function core.content_writer. */
void kw_bind_push_content_writer(lua_State *L);

#endif
