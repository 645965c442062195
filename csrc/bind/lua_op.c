/* SPDX-License-Identifier: MIT */
#include "bind/lua_op.h"

#include "bind/lua_list.h"
#include "bind/lua_options.h"
#include "model/error.h"

#define LEAST_BYTES 4 /* of an op or a compare in a message: two tags, each followed by a byte */

/* {====== Ranges of keys ====== */

/* The options that make a range of a key. */
typedef struct key_options {
  kw_slice range_end;
  bool prefix;
  bool from_key;
} key_options;

static const kw_slice zero = {(const uint8_t *)"\0", 1}; /* the least key; as an end: no end */

/* Sets the end of the range of a prefix: increments the last byte below 0xff, and removes the bytes after it. */
static int prefix_end(kw_slice prefix, kw_arena *arena, kw_slice *end) {
  size_t len = prefix.len;
  while (len > 0 && prefix.data[len - 1] == 0xff) len--;
  *end = zero;
  if (len == 0) return KW_OK;
  uint8_t *bytes = kw_arena_alloc(arena, len);
  if (bytes == NULL) return KW_ERR_NO_MEMORY;
  memcpy(bytes, prefix.data, len);
  bytes[len - 1]++;
  *end = kw_slice_of(bytes, len);
  return KW_OK;
}

static int read_range(lua_State *L, const char *what, kw_slice key, const key_options *given,
                      kw_arena *arena, kw_range *range) {
  int ways = given->prefix + given->from_key + (given->range_end.data != NULL);
  if (ways > 1) luaL_error(L, "%s: prefix, from_key and range_end exclude each other", what);
  *range = (kw_range){.key = key, .end = given->range_end};
  if (!given->prefix && !given->from_key) return KW_OK;
  range->end = zero;
  if (key.len == 0) range->key = zero;
  return given->prefix && key.len > 0 ? prefix_end(key, arena, &range->end) : KW_OK;
}

#define KEY_OPTIONS(type)                                                                          \
  {"prefix", KW_OPTION_BOOL, offsetof(type, keys.prefix), NULL},                                   \
      {"range_end", KW_OPTION_BYTES, offsetof(type, keys.range_end), NULL}, {                      \
    "from_key", KW_OPTION_BOOL, offsetof(type, keys.from_key), NULL                                \
  }

/* }====== */

/* {====== The options of each op ======
 *
 * Each list is used for the plain call; with the verb and its key as one more field, also for the op of a transaction.
 */

typedef struct range_fields {
  kw_slice key;
  key_options keys;
  kw_range_op op;
  int sort_order;
  int sort_target;
  kw_times times;
} range_fields;

static const char *const sort_orders[] = {"none", "ascend", "descend", NULL};
static const char *const sort_targets[] = {"key", "version", "create", "mod", "value", NULL};

#define RANGE_OPTION(name, kind)                                                                   \
  { #name, KW_OPTION_##kind, offsetof(range_fields, op.name), NULL }

#define RANGE_OPTIONS                                                                              \
  KEY_OPTIONS(range_fields), RANGE_OPTION(limit, COUNT), RANGE_OPTION(revision, COUNT),            \
      {"sort_order", KW_OPTION_ENUM, offsetof(range_fields, sort_order), sort_orders},             \
      {"sort_target", KW_OPTION_ENUM, offsetof(range_fields, sort_target), sort_targets},          \
      RANGE_OPTION(serializable, BOOL), RANGE_OPTION(keys_only, BOOL),                             \
      RANGE_OPTION(count_only, BOOL), RANGE_OPTION(min_mod_revision, COUNT),                       \
      RANGE_OPTION(max_mod_revision, COUNT), RANGE_OPTION(min_create_revision, COUNT),             \
      RANGE_OPTION(max_create_revision, COUNT), KW_COMMON_OPTIONS(range_fields)

/* A get is a range of one key, without the options that are useless for one key. */
#define GET_OPTIONS                                                                                \
  RANGE_OPTION(revision, COUNT), RANGE_OPTION(serializable, BOOL), RANGE_OPTION(keys_only, BOOL),  \
      KW_COMMON_OPTIONS(range_fields)

static const kw_option range_options[] = {RANGE_OPTIONS, KW_END_OF_OPTIONS};
static const kw_option get_options[] = {GET_OPTIONS, KW_END_OF_OPTIONS};
static const kw_option txn_range_fields[] = {
    {"range", KW_OPTION_BYTES, offsetof(range_fields, key), NULL},
    RANGE_OPTIONS,
    KW_END_OF_OPTIONS};
static const kw_option txn_get_fields[] = {
    {"get", KW_OPTION_BYTES, offsetof(range_fields, key), NULL}, GET_OPTIONS, KW_END_OF_OPTIONS};

typedef struct put_fields {
  kw_put_op op;
  kw_times times;
} put_fields;

#define PUT_OPTION(name, kind)                                                                     \
  { #name, KW_OPTION_##kind, offsetof(put_fields, op.name), NULL }

#define PUT_OPTIONS                                                                                \
  PUT_OPTION(lease, ID), PUT_OPTION(prev_kv, BOOL), PUT_OPTION(ignore_value, BOOL),                \
      PUT_OPTION(ignore_lease, BOOL), KW_COMMON_OPTIONS(put_fields)

static const kw_option put_options[] = {PUT_OPTIONS, KW_END_OF_OPTIONS};
static const kw_option txn_put_fields[] = {
    {"put", KW_OPTION_BYTES, offsetof(put_fields, op.key), NULL},
    PUT_OPTION(value, BYTES),
    PUT_OPTIONS,
    KW_END_OF_OPTIONS};

typedef struct delete_fields {
  kw_slice key;
  key_options keys;
  kw_delete_op op;
  kw_times times;
} delete_fields;

#define DELETE_OPTIONS                                                                             \
  KEY_OPTIONS(delete_fields),                                                                      \
      {"prev_kv", KW_OPTION_BOOL, offsetof(delete_fields, op.prev_kv), NULL},                      \
      KW_COMMON_OPTIONS(delete_fields)

static const kw_option delete_options[] = {DELETE_OPTIONS, KW_END_OF_OPTIONS};
static const kw_option txn_delete_fields[] = {
    {"delete", KW_OPTION_BYTES, offsetof(delete_fields, key), NULL},
    DELETE_OPTIONS,
    KW_END_OF_OPTIONS};

typedef struct watch_fields {
  kw_slice key;
  key_options keys;
  kw_watch_spec spec;
  int64_t max_bytes;
} watch_fields;

#define WATCH_OPTION(name, kind)                                                                   \
  { #name, KW_OPTION_##kind, offsetof(watch_fields, spec.name), NULL }

static const kw_option watch_options[] = {
    KEY_OPTIONS(watch_fields),
    WATCH_OPTION(start_revision, COUNT),
    WATCH_OPTION(no_put, BOOL),
    WATCH_OPTION(no_delete, BOOL),
    WATCH_OPTION(prev_kv, BOOL),
    WATCH_OPTION(progress, BOOL),
    {"max_bytes", KW_OPTION_COUNT, offsetof(watch_fields, max_bytes), NULL},
    KW_END_OF_OPTIONS};

static int finish_range(lua_State *L, const char *what, range_fields *fields, kw_arena *arena,
                        kw_op *op) {
  *op = (kw_op){.kind = KW_OP_RANGE, .range = fields->op};
  op->range.sort_order = (kw_sort_order)fields->sort_order;
  op->range.sort_target = (kw_sort_target)fields->sort_target;
  return read_range(L, what, fields->key, &fields->keys, arena, &op->range.range);
}

static int finish_delete(lua_State *L, const char *what, delete_fields *fields, kw_arena *arena,
                         kw_op *op) {
  *op = (kw_op){.kind = KW_OP_DELETE, .delete = fields->op};
  return read_range(L, what, fields->key, &fields->keys, arena, &op->delete.range);
}

int kw_bind_read_get_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times) {
  range_fields fields = {.key = kw_bind_check_bytes(L, 2)};
  kw_bind_read_options(L, 3, "get", get_options, &fields);
  kw_bind_keep_times(times, &fields.times);
  return finish_range(L, "get", &fields, arena, op);
}

int kw_bind_read_range_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times) {
  range_fields fields = {.key = kw_bind_check_bytes(L, 2)};
  kw_bind_read_options(L, 3, "range", range_options, &fields);
  kw_bind_keep_times(times, &fields.times);
  return finish_range(L, "range", &fields, arena, op);
}

int kw_bind_read_put_op(lua_State *L, kw_op *op, kw_times *times) {
  put_fields fields = {.op = {.key = kw_bind_check_bytes(L, 2)}};
  kw_bind_read_options(L, 4, "put", put_options, &fields);
  bool keeps_value = fields.op.ignore_value && lua_isnoneornil(L, 3);
  if (!keeps_value) fields.op.value = kw_bind_check_bytes(L, 3);
  *op = (kw_op){.kind = KW_OP_PUT, .put = fields.op};
  kw_bind_keep_times(times, &fields.times);
  return KW_OK;
}

int kw_bind_read_delete_op(lua_State *L, kw_arena *arena, kw_op *op, kw_times *times) {
  delete_fields fields = {.key = kw_bind_check_bytes(L, 2)};
  kw_bind_read_options(L, 3, "delete", delete_options, &fields);
  kw_bind_keep_times(times, &fields.times);
  return finish_delete(L, "delete", &fields, arena, op);
}

/* }====== */

int kw_bind_read_watch_spec(lua_State *L, kw_arena *arena, kw_watch_spec *spec,
                            int64_t *max_bytes) {
  watch_fields fields = {.key = kw_bind_check_bytes(L, 2), .max_bytes = *max_bytes};
  kw_bind_read_options(L, 3, "watch", watch_options, &fields);
  *spec = fields.spec;
  *max_bytes = fields.max_bytes;
  return read_range(L, "watch", fields.key, &fields.keys, arena, &spec->range);
}

/* {====== Compares ====== */

typedef struct compare_fields {
  kw_slice key;
  key_options keys;
  int op;
  int64_t version;
  int64_t create_revision;
  int64_t mod_revision;
  kw_slice value;
  int64_t lease;
} compare_fields;

static const char *const compare_ops[] = {"=", ">", "<", "!=", NULL}; /* as kw_compare_result */

static const kw_option compare_options[] = {
    {"key", KW_OPTION_BYTES, offsetof(compare_fields, key), NULL},
    KEY_OPTIONS(compare_fields),
    {"op", KW_OPTION_ENUM, offsetof(compare_fields, op), compare_ops},
    {"version", KW_OPTION_COUNT, offsetof(compare_fields, version), NULL},
    {"create_revision", KW_OPTION_COUNT, offsetof(compare_fields, create_revision), NULL},
    {"mod_revision", KW_OPTION_COUNT, offsetof(compare_fields, mod_revision), NULL},
    {"value", KW_OPTION_BYTES, offsetof(compare_fields, value), NULL},
    {"lease", KW_OPTION_ID, offsetof(compare_fields, lease), NULL},
    KW_END_OF_OPTIONS};

static bool has_field(lua_State *L, int at, const char *name) {
  bool is_there = kw_bind_push_field(L, at, name);
  if (is_there) lua_pop(L, 1);
  return is_there;
}

/* Pushes the first name, in alphabetical order, of a field that is in no list of options, or "". NULL ends the
 * lists. */
static const char *push_unknown_field(lua_State *L, int at, const kw_option *const *lists) {
  const char *least = "";
  lua_pushliteral(L, "");
  lua_pushnil(L);
  while (lua_next(L, at) != 0) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const char *name = lua_tostring(L, -1);
    bool is_known = false;
    for (const kw_option *const *list = lists; *list != NULL; list++) {
      for (const kw_option *one = *list; one->name != NULL; one++)
        is_known = is_known || strcmp(one->name, name) == 0;
    }
    if (is_known || (*least != '\0' && strcmp(name, least) > 0)) continue;
    least = name;
    lua_pushvalue(L, -1);
    lua_replace(L, -3);
  }
  return least;
}

/* Raises an error: a table has none of `names`. */
static void fail_without(lua_State *L, int at, const char *what, const char *const *names,
                         const char *kind, const kw_option *const *lists) {
  luaL_checkstack(L, 8, "names");
  const char *unknown = push_unknown_field(L, at, lists);
  lua_pushstring(L, names[0]);
  for (int i = 1; names[i] != NULL; i++) {
    lua_pushfstring(L, "%s, %s", lua_tostring(L, -1), names[i]);
    lua_remove(L, -2);
  }
  luaL_error(L, "%s: has no %s%s%s%s: give one of %s", what, kind,
             *unknown != '\0' ? ", but a field '" : "", unknown, *unknown != '\0' ? "'" : "",
             lua_tostring(L, -1));
}

/* Returns the index of the only one of `names` that is a field of the table. Raises unless there is exactly one. */
static int only_field(lua_State *L, int at, const char *what, const char *const *names,
                      const char *kind, const kw_option *const *lists) {
  int found = -1;
  for (int i = 0; names[i] != NULL; i++) {
    if (!has_field(L, at, names[i])) continue;
    if (found >= 0)
      luaL_error(L, "%s: has two %ss, '%s' and '%s'", what, kind, names[found], names[i]);
    found = i;
  }
  if (found < 0) fail_without(L, at, what, names, kind, lists);
  return found;
}

static const char *const compare_targets[] = {"version", "create_revision", "mod_revision",
                                              "value",   "lease",           NULL};

static int64_t compare_number(const compare_fields *fields, kw_compare_target target) {
  switch (target) {
    case KW_COMPARE_VERSION: return fields->version;
    case KW_COMPARE_CREATE: return fields->create_revision;
    case KW_COMPARE_MOD: return fields->mod_revision;
    case KW_COMPARE_LEASE: return fields->lease;
    case KW_COMPARE_VALUE: break;
  }
  return 0;
}

/* Reads the table on top of the stack. */
static int read_compare(lua_State *L, const char *what, kw_arena *arena, kw_compare *compare) {
  static const kw_option *const lists[] = {compare_options, NULL};
  compare_fields fields = {0};
  kw_bind_read_options(L, -1, what, compare_options, &fields);
  if (fields.key.data == NULL) luaL_error(L, "%s: has no key", what);
  compare->target =
      (kw_compare_target)only_field(L, lua_gettop(L), what, compare_targets, "target", lists);
  compare->result = (kw_compare_result)fields.op;
  compare->number = compare_number(&fields, compare->target);
  compare->value = fields.value;
  compare->given = (int)KW_COMPARE_FIELD(compare->target);
  return read_range(L, what, fields.key, &fields.keys, arena, &compare->range);
}

/* }====== */

/* {====== Transactions ====== */

typedef struct txn_reader {
  kw_arena *arena;
  kw_times times;
  size_t left; /* how many more ops and compares are allowed: one table may occur many times */
  int depth;
} txn_reader;

static int read_txn(lua_State *L, txn_reader *reader, kw_op *op);

static const char *const verbs[] = {"get", "range", "put", "delete", "txn", NULL};
enum { VERB_GET, VERB_RANGE, VERB_PUT, VERB_DELETE, VERB_TXN };

static int read_nested_txn(lua_State *L, const char *what, txn_reader *reader, kw_op *op) {
  static const kw_option fields[] = {{"txn", KW_OPTION_TABLE, KW_NOWHERE, NULL}, KW_END_OF_OPTIONS};
  kw_bind_read_options(L, -1, what, fields, NULL);
  if (reader->depth == KW_MAX_TXN_NESTING) {
    luaL_error(L, "txn: nested more than %d deep", KW_MAX_TXN_NESTING);
  }
  reader->depth++;
  kw_bind_push_field(L, -1, "txn");
  int rc = read_txn(L, reader, op);
  lua_pop(L, 1);
  reader->depth--;
  return rc;
}

/* Reads the table on top of the stack. */
static int read_op(lua_State *L, const char *what, txn_reader *reader, kw_op *op) {
  static const kw_option *const lists[] = {txn_get_fields, txn_range_fields, txn_put_fields,
                                           txn_delete_fields, NULL};
  int verb = only_field(L, lua_gettop(L), what, verbs, "verb", lists);
  range_fields range = {0};
  put_fields put = {0};
  delete_fields delete = {0};
  int rc;
  switch (verb) {
    case VERB_GET:
      kw_bind_read_options(L, -1, what, txn_get_fields, &range);
      rc = finish_range(L, what, &range, reader->arena, op);
      op->tag = KW_BIND_GET;
      return rc;
    case VERB_RANGE:
      kw_bind_read_options(L, -1, what, txn_range_fields, &range);
      return finish_range(L, what, &range, reader->arena, op);
    case VERB_PUT:
      kw_bind_read_options(L, -1, what, txn_put_fields, &put);
      if (put.op.value.data == NULL && !put.op.ignore_value) {
        luaL_error(L, "%s: a put needs a value", what);
      }
      *op = (kw_op){.kind = KW_OP_PUT, .put = put.op};
      return KW_OK;
    case VERB_DELETE:
      kw_bind_read_options(L, -1, what, txn_delete_fields, &delete);
      return finish_delete(L, what, &delete, reader->arena, op);
    default: return read_nested_txn(L, what, reader, op);
  }
}

/* Pushes the list `name` of the table on top of the stack, or nil, and allocates an array for its elements. The
 * ops and compares of the whole transaction are counted. */
static int begin_list(lua_State *L, const char *name, txn_reader *reader, size_t size, void **items,
                      size_t *n) {
  if (!kw_bind_push_field(L, -1, name)) {
    lua_pushnil(L);
    return KW_OK;
  }
  *n = kw_bind_check_list(L, -1, name);
  if (*n > reader->left) return KW_ERR_REQUEST_TOO_LARGE;
  reader->left -= *n;
  *items = kw_arena_array(reader->arena, *n, size);
  return *items == NULL ? KW_ERR_NO_MEMORY : KW_OK;
}

static int read_compares(lua_State *L, txn_reader *reader, kw_txn_op *txn) {
  void *items = NULL;
  int rc = begin_list(L, "compare", reader, sizeof(kw_compare), &items, &txn->n_compares);
  kw_compare *compares = items;
  for (size_t i = 0; i < txn->n_compares && rc == KW_OK; i++) {
    kw_element_name what = kw_bind_push_element(L, "compare", i);
    rc = read_compare(L, what.text, reader->arena, &compares[i]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  txn->compares = compares;
  return rc;
}

/* Reads the list `name`, "success" or "failure". */
static int read_ops(lua_State *L, const char *name, txn_reader *reader, const kw_op **list,
                    size_t *n) {
  void *items = NULL;
  int rc = begin_list(L, name, reader, sizeof(kw_op), &items, n);
  kw_op *ops = items;
  for (size_t i = 0; i < *n && rc == KW_OK; i++) {
    kw_element_name what = kw_bind_push_element(L, name, i);
    rc = read_op(L, what.text, reader, &ops[i]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  *list = ops;
  return rc;
}

/* The timeout and deadline may be fields of the outermost transaction. The options take precedence. */
static void add_times(txn_reader *reader, const kw_times *more) {
  if (reader->depth > 0) return;
  if (!reader->times.timeout.is_given) reader->times.timeout = more->timeout;
  if (!reader->times.deadline.is_given) reader->times.deadline = more->deadline;
}

/* Reads the table on top of the stack. */
static int read_txn(lua_State *L, txn_reader *reader, kw_op *op) {
  struct found {
    kw_times times;
  } found = {0};
  static const kw_option fields[] = {{"compare", KW_OPTION_TABLE, KW_NOWHERE, NULL},
                                     {"success", KW_OPTION_TABLE, KW_NOWHERE, NULL},
                                     {"failure", KW_OPTION_TABLE, KW_NOWHERE, NULL},
                                     KW_COMMON_OPTIONS(struct found),
                                     KW_END_OF_OPTIONS};
  luaL_checkstack(L, 12, "txn");
  kw_bind_read_options(L, -1, "txn", fields, &found);
  add_times(reader, &found.times);
  *op = (kw_op){.kind = KW_OP_TXN};
  kw_txn_op *txn = &op->txn;
  int rc = read_compares(L, reader, txn);
  if (rc == KW_OK) rc = read_ops(L, "success", reader, &txn->success, &txn->n_success);
  if (rc == KW_OK) rc = read_ops(L, "failure", reader, &txn->failure, &txn->n_failure);
  return rc;
}

int kw_bind_read_txn_op(lua_State *L, int64_t max_bytes, kw_arena *arena, kw_op *op,
                        kw_times *times) {
  txn_reader reader = {.arena = arena, .left = (size_t)max_bytes / LEAST_BYTES};
  luaL_checktype(L, 2, LUA_TTABLE);
  kw_bind_read_times(L, 3, "txn", &reader.times);
  int top = lua_gettop(L);
  lua_pushvalue(L, 2);
  int rc = read_txn(L, &reader, op);
  lua_settop(L, top);
  kw_bind_keep_times(times, &reader.times);
  return rc;
}

/* }====== */

/* {====== Claims ====== */

/* The arrays of a claim's ops. */
typedef struct claim_ops {
  kw_compare compare;
  kw_op success[2];
  kw_op failure[2];
} claim_ops;

static void set_txn(kw_op *op, const claim_ops *ops, size_t n_success, size_t n_failure) {
  *op = (kw_op){.kind = KW_OP_TXN,
                .txn = {.compares = &ops->compare,
                        .n_compares = 1,
                        .success = ops->success,
                        .n_success = n_success,
                        .failure = ops->failure,
                        .n_failure = n_failure}};
}

/* Returns the compare that holds if every key of a range was created at a revision; with 0, if the range has no
 * keys. */
static kw_compare created_at(kw_range range, int64_t revision) {
  return (kw_compare){.range = range,
                      .target = KW_COMPARE_CREATE,
                      .number = revision,
                      .given = (int)KW_COMPARE_FIELD(KW_COMPARE_CREATE)};
}

int kw_bind_read_claim(lua_State *L, kw_arena *arena, kw_op *op) {
  kw_range all = {.key = kw_bind_check_bytes(L, 2)};
  kw_put_op put = {.key = kw_bind_check_bytes(L, 3),
                   .value = kw_bind_check_bytes(L, 4),
                   .lease = kw_bind_check_id(L, 5)};
  const kw_range own = {.key = put.key};
  claim_ops *ops = kw_arena_alloc(arena, sizeof *ops);
  if (ops == NULL) return KW_ERR_NO_MEMORY;
  int rc = prefix_end(all.key, arena, &all.end);
  const kw_op oldest = {.kind = KW_OP_RANGE,
                        .range = {.range = all,
                                  .limit = 1,
                                  .sort_order = KW_SORT_ASCEND,
                                  .sort_target = KW_SORT_CREATE,
                                  .keys_only = true}};
  ops->compare = created_at(lua_toboolean(L, 6) ? all : own, 0);
  ops->success[0] = (kw_op){.kind = KW_OP_PUT, .put = put};
  ops->failure[0] = (kw_op){.kind = KW_OP_RANGE, .range = {.range = own}};
  ops->success[1] = ops->failure[1] = oldest;
  set_txn(op, ops, 2, 2);
  return rc;
}

int kw_bind_read_unclaim(lua_State *L, kw_arena *arena, kw_op *op) {
  const kw_range own = {.key = kw_bind_check_bytes(L, 2)};
  int64_t created = kw_bind_check_int(L, 3, 0);
  claim_ops *ops = kw_arena_alloc(arena, sizeof *ops);
  if (ops == NULL) return KW_ERR_NO_MEMORY;
  ops->compare = created_at(own, created);
  ops->success[0] = (kw_op){.kind = KW_OP_DELETE, .delete = {.range = own}};
  set_txn(op, ops, 1, 0);
  return KW_OK;
}

/* }====== */

/* {====== Compaction and leases ====== */

void kw_bind_read_compaction(lua_State *L, kw_compaction_request *request, kw_times *times) {
  struct fields {
    bool physical;
    kw_times times;
  } fields = {0};
  static const kw_option options[] = {
      {"physical", KW_OPTION_BOOL, offsetof(struct fields, physical), NULL},
      KW_COMMON_OPTIONS(struct fields),
      KW_END_OF_OPTIONS};
  request->revision = kw_bind_check_int(L, 2, 0);
  kw_bind_read_options(L, 3, "compact", options, &fields);
  request->physical = fields.physical;
  kw_bind_keep_times(times, &fields.times);
}

void kw_bind_read_grant(lua_State *L, kw_lease_message *lease, kw_times *times) {
  struct fields {
    int64_t id;
    kw_times times;
  } fields = {0};
  static const kw_option options[] = {{"id", KW_OPTION_ID, offsetof(struct fields, id), NULL},
                                      KW_COMMON_OPTIONS(struct fields),
                                      KW_END_OF_OPTIONS};
  int64_t ttl = kw_bind_check_int(L, 2, INT64_MIN);
  kw_bind_read_options(L, 3, "lease", options, &fields);
  *lease = (kw_lease_message){.id = fields.id, .ttl = ttl};
  kw_bind_keep_times(times, &fields.times);
}

void kw_bind_read_lease(lua_State *L, const char *what, kw_lease_message *lease, kw_times *times) {
  *lease = (kw_lease_message){.id = kw_bind_check_id(L, 2)};
  kw_bind_read_times(L, 3, what, times);
}

void kw_bind_read_time_to_live(lua_State *L, kw_lease_message *lease, kw_times *times) {
  struct fields {
    bool keys;
    kw_times times;
  } fields = {0};
  static const kw_option options[] = {{"keys", KW_OPTION_BOOL, offsetof(struct fields, keys), NULL},
                                      KW_COMMON_OPTIONS(struct fields),
                                      KW_END_OF_OPTIONS};
  int64_t id = kw_bind_check_id(L, 2);
  kw_bind_read_options(L, 3, "lease", options, &fields);
  *lease = (kw_lease_message){.id = id, .wants_keys = fields.keys};
  kw_bind_keep_times(times, &fields.times);
}

/* }====== */
