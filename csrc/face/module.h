/* SPDX-License-Identifier: MIT
 *
 * module: helpers for the functions that open a module (luaopen_*).
 */
#ifndef KW_FACE_MODULE_H
#define KW_FACE_MODULE_H

#include "face/compat.h"

/* Raises an error if PUC Lua 5.1 has loaded an object that was built for LuaJIT: both look for modules in the same
 * places. Before this check only functions that both have may be called. */
static inline void kw_check_vm(lua_State *L) {
#if !KW_INTEGERS
  lua_getfield(L, LUA_GLOBALSINDEX, "jit");
  bool is_luajit = !lua_isnil(L, -1);
  lua_settop(L, -2);
  if (!is_luajit) luaL_error(L, "%s", KW_NEEDS_VM);
#else
  (void)L;
#endif
}

/* Makes a class of userdata: a metatable in the registry under `name`, with the functions of `meta`, and the
 * functions of `methods` in its __index. Both lists end with {NULL, NULL}. Leaves nothing on the stack. */
__attribute__((visibility("hidden"))) void
kw_add_class(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods);

/* Pushes an object of a class: a userdata of `size` bytes, all zero, which means closed, with `values` user values
 * (LuaJIT's always have one). Returns it.
 *
 * The rule of finalizers. Any call that asks Lua for memory may run a finalizer. A finalizer of a user may close and
 * cancel any object, and may spawn tasks; nothing else is guaranteed to work in it. So a function of a binding
 *   - first makes the Lua objects that it needs, and only then checks its own object, or checks it again;
 *   - and copies what it needs of that object before it pushes the first value; or marks the object as busy while it
 *     pushes what the object owns. A finalizer that then uses the object gets an error, and a close is delayed to the
 *     end of the call. */
__attribute__((visibility("hidden"))) void *kw_new_object(lua_State *L, const char *name,
                                                          size_t size, int values);

/* Publishes a struct of functions in the registry under `key`: a copy in a full userdata, which lives as long as the
 * state, since drivers have pointers to it. If the same struct is published there already, does nothing; a different
 * one is replaced, but lives on. Leaves nothing on the stack. */
__attribute__((visibility("hidden"))) void kw_publish(lua_State *L, const char *key,
                                                      const void *functions, size_t size);

/* Adds the functions with which tests inspect a module; called at the end of luaopen_*, with the module on top of the
 * stack. NULL except in builds for tests, where files of csrc/probe set it when the shared object is loaded. */
extern __attribute__((visibility("hidden"))) void (*kw_module_probe)(lua_State *L);

/* Keeps a shared object loaded until the process ends. `symbol` is the address of any function in it. At exit LuaJIT
 * unloads modules before the finalizers of older objects have run, which may call into the module. */
__attribute__((visibility("hidden"))) void kw_pin(void *symbol);

#endif
