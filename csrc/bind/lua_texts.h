/* SPDX-License-Identifier: MIT
 *
 * lua_texts: ranges of objects of Kubernetes, as one JSON text. It goes from the records of a store to the body of an
 * answer without Lua strings: LuaJIT makes strings that differ only in the middle slowly, since they have the same
 * hash, and Lua's collector would work for each list as long as the list takes.
 *
 *   core.inner.texts(store, key, opts, lead, max) -> { revision, count, more, n, bytes, text, last }
 *                              reads a range like the method try_range. `text` has the served texts of its first n
 *                              objects, with `lead` before them and commas between them; in all `bytes` bytes, and at
 *                              most one object beyond `max`. `last` is the key of the last one. If the next object is
 *                              not plain (codec/object_text.h), the text ends before it, and `more` is true. Returns
 *                              false if one turn is not enough for the range; or nil and an error
 *   tostring(text) -> string   "" after text:close()
 *   text:close()               frees the text
 *   server:send_text(id, text) -> boolean
 *                              does what server:send does, and closes the text
 */
#ifndef KW_BIND_LUA_TEXTS_H
#define KW_BIND_LUA_TEXTS_H

#include "face/compat.h"

/* Adds the methods of a server to the table on top of the stack. */
void kw_bind_add_texts(lua_State *L);

/* Creates the class of texts. */
void kw_bind_add_text_class(lua_State *L);

#endif
