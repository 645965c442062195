/* SPDX-License-Identifier: MIT
 *
 * lua_options: reads a table of named fields into a C record. A list has the kind and the offset of each name.
 *
 * A name that is not in the list raises, so that a misspelled option is not ignored. Tables are read raw, and
 * nothing is allocated unless an error is raised: no Lua code runs, not even a finalizer. The slices that were read are
 * valid while the table has their strings.
 */
#ifndef KW_BIND_LUA_OPTIONS_H
#define KW_BIND_LUA_OPTIONS_H

#include "bind/lua_value.h"

typedef enum kw_option_kind {
  KW_OPTION_BOOL,    /* bool */
  KW_OPTION_COUNT,   /* int64_t, not negative */
  KW_OPTION_INT,     /* int64_t */
  KW_OPTION_ID,      /* int64_t; also an object with a field `id`, if it is of the same store */
  KW_OPTION_BITS,    /* uint64_t */
  KW_OPTION_BYTES,   /* kw_slice */
  KW_OPTION_ENUM,    /* int: the index in `names`, from 0 */
  KW_OPTION_SECONDS, /* kw_seconds */
  KW_OPTION_TABLE    /* a table; not stored, the caller reads it */
} kw_option_kind;

typedef struct kw_seconds {
  bool is_given;
  double value; /* any number except NaN: the caller checks its sign and size */
} kw_seconds;

/* The limits on the time of a call. */
typedef struct kw_times {
  kw_seconds timeout;  /* from the beginning of the call */
  kw_seconds deadline; /* a time of the driver's clock */
} kw_times;

typedef struct kw_option {
  const char *name;
  kw_option_kind kind;
  size_t offset;            /* of the field in the record */
  const char *const *names; /* of an ENUM, terminated by NULL */
} kw_option;

#define KW_NOWHERE ((size_t)-1) /* the offset of an option that is checked and not stored */

/* The options that every call takes. They go into the field `times` of the record. A store in this process ignores
 * them. */
#define KW_COMMON_OPTIONS(type)                                                                    \
  {"timeout", KW_OPTION_SECONDS, offsetof(type, times.timeout), NULL}, {                           \
    "deadline", KW_OPTION_SECONDS, offsetof(type, times.deadline), NULL                            \
  }

#define KW_END_OF_OPTIONS                                                                          \
  { NULL, KW_OPTION_BOOL, 0, NULL }

/* Reads the table at index `at`, which may be absent or nil, into `record`. Fields that the table does not have keep
 * their value. `what` names the table in errors. */
void kw_bind_read_options(lua_State *L, int at, const char *what, const kw_option *list,
                          void *record);

/* Reads the options of a call that takes only the common options. If `times` is NULL, they are checked and not
 * stored. */
void kw_bind_read_times(lua_State *L, int at, const char *what, kw_times *times);

/* Copies the times, unless the caller does not want them. */
static inline void kw_bind_keep_times(kw_times *times, const kw_times *found) {
  if (times != NULL) *times = *found;
}

/* True if the value at index `at` is the string `name`. */
bool kw_bind_is(lua_State *L, int at, const char *name);

/* Pushes the field `name` of the table at index `at`, read raw, and returns true. Pushes nothing and returns false if
 * there is no such field. */
bool kw_bind_push_field(lua_State *L, int at, const char *name);

#endif
