/* SPDX-License-Identifier: MIT
 *
 * lua_options: tables of named fields, read by a list that says what each is and where it goes.
 *
 * A name that is not in the list raises, so that a slip of the pen is not taken for a wish. Tables are read raw, and
 * nothing is allocated unless it raises: no Lua code runs, not even a finalizer, and the strings found stay alive as
 * long as the table has them.
 */
#ifndef KW_BIND_LUA_OPTIONS_H
#define KW_BIND_LUA_OPTIONS_H

#include "bind/lua_value.h"

typedef enum kw_option_kind {
  KW_OPTION_BOOL,    /* bool */
  KW_OPTION_COUNT,   /* int64_t, not negative */
  KW_OPTION_INT,     /* int64_t */
  KW_OPTION_ID,      /* int64_t; also an object that has a field `id` */
  KW_OPTION_BITS,    /* uint64_t */
  KW_OPTION_BYTES,   /* kw_slice */
  KW_OPTION_ENUM,    /* int: the place in `names` */
  KW_OPTION_SECONDS, /* kw_seconds */
  KW_OPTION_TABLE,   /* a table, which the caller reads itself */
  KW_OPTION_ANY      /* anything, which is of no concern here */
} kw_option_kind;

typedef struct kw_seconds {
  bool is_given;
  double value;
} kw_seconds;

/* How long a call may take. */
typedef struct kw_times {
  kw_seconds timeout;
  kw_seconds deadline;
} kw_times;

typedef struct kw_option {
  const char *name;
  kw_option_kind kind;
  size_t offset;            /* in the record that is filled in */
  const char *const *names; /* of an ENUM, ended by NULL */
} kw_option;

#define KW_NOWHERE ((size_t)-1) /* the offset of what is checked and not kept */

/* What every call takes, kept in the field `times` of its record. A store in this process has no use for it. */
#define KW_COMMON_OPTIONS(type)                                                                    \
  {"timeout", KW_OPTION_SECONDS, offsetof(type, times.timeout), NULL}, {                           \
    "deadline", KW_OPTION_SECONDS, offsetof(type, times.deadline), NULL                            \
  }

#define KW_END_OF_OPTIONS                                                                          \
  { NULL, KW_OPTION_ANY, 0, NULL }

/* Reads the table at `at`, which may be absent, into `record`; fields that are not there keep what they have.
 * `what` names the table in errors. */
void kw_bind_read_options(lua_State *L, int at, const char *what, const kw_option *list,
                          void *record);

/* The same for calls that take only what every call takes. Here and below, `times` may be NULL. */
void kw_bind_read_times(lua_State *L, int at, const char *what, kw_times *times);

/* Hands over what was read. */
static inline void kw_bind_keep_times(kw_times *times, const kw_times *found) {
  if (times != NULL) *times = *found;
}

/* Whether the value at `at` is the string `name`. */
bool kw_bind_is(lua_State *L, int at, const char *name);

/* Pushes the field of that name of the table at `at`; pushes nothing, and returns false, if there is none. */
bool kw_bind_push_field(lua_State *L, int at, const char *name);

#endif
