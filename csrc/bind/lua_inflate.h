/* SPDX-License-Identifier: MIT
 *
 * lua_inflate: decompression of bodies, see http/inflate.h.
 *
 *   core.inflater() -> inflater                 nothing: zlib cannot be loaded, or memory is short
 *   inflater:step(bytes, from) -> text, next, is_over
 *                                               decompresses the bytes from the index `from` on. text: at most 64 KiB.
 *                                               next: the index for the next step; if it is after the last byte and
 *                                               text is empty, new bytes are needed. is_over: the data is complete,
 *                                               though another part may follow. nil, why: the data is not valid, or
 *                                               memory is short
 */
#ifndef KW_BIND_LUA_INFLATE_H
#define KW_BIND_LUA_INFLATE_H

#include "face/compat.h"

/* Pushes the function core.inflater. */
void kw_bind_push_inflater(lua_State *L);

#endif
