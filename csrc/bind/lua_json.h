/* SPDX-License-Identifier: MIT
 *
 * lua_json: JSON from and to Lua values, for the module keywatch.json.
 *
 *   objects   tables with names; empty tables
 *   arrays    tables with the keys 1 to n; decoded ones have the metatable core.json_array, so that they stay arrays
 *             when they are empty
 *   null      core.json_null, a light userdata: the address NULL, as in lua-cjson and nginx
 *   integers  of Lua 5.4, if 64 bits hold them; of LuaJIT, up to 2^53; larger ones by option
 *   floats    doubles; Lua 5.4 writes and reads whole ones with a fraction, 1.0
 *
 * A decoded object that keeps its order has a metatable of its own, a list of the names, whose metatable is that of all
 * such lists.
 */
#ifndef KW_BIND_LUA_JSON_H
#define KW_BIND_LUA_JSON_H

#include "base/common.h"
#include "face/compat.h"

/* Adds to the module on top of the stack: json_decode, json_encode, json_items, json_array and json_null. */
void kw_bind_add_json(lua_State *L);

#endif
