/* SPDX-License-Identifier: MIT
 *
 * lua_list: arguments that are lists of tables.
 *
 * Lists are read raw. Nothing is allocated unless an error is raised, so no finalizer runs.
 */
#ifndef KW_BIND_LUA_LIST_H
#define KW_BIND_LUA_LIST_H

#include "base/common.h"
#include "face/compat.h"

/* The name of an element in errors, such as "success[3]". */
typedef struct kw_element_name {
  char text[40];
} kw_element_name;

/* Returns the length of the list at stack index `at`. Raises if the value is not a table, or if the table has
 * holes or other keys: a hole would hide the elements behind it. `name` names the list in errors. */
size_t kw_bind_check_list(lua_State *L, int at, const char *name);

/* Pushes the element with index `i`, counted from 0, of the list on top of the stack. Raises if the element is not a
 * table. Returns the name of the element. */
kw_element_name kw_bind_push_element(lua_State *L, const char *name, size_t i);

#endif
