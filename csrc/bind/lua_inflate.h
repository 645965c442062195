/* SPDX-License-Identifier: MIT
 *
 * lua_inflate: decompression of bodies, see http/inflate.h.
 *
 *   core.inflater() -> inflater                 nothing: zlib cannot be loaded, or memory is short
 *   inflater:step(bytes, from) -> text, next, is_over
 *                                               decompresses the bytes from an index on. text: at most 64 KiB;
 *                                               next: the index for the next step; after the last byte, once text is
 *                                               empty too, other bytes are needed. is_over: the data is complete; more
 *                                               may follow. nil, why: the data is not valid, or memory is short
 */
#ifndef KW_BIND_LUA_INFLATE_H
#define KW_BIND_LUA_INFLATE_H

#include "face/compat.h"

/* Pushes the function core.inflater. */
void kw_bind_push_inflater(lua_State *L);

#endif
