/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "bind/lua_write.h"

#include "base/mem.h"
#include "bind/lua_op.h"
#include "bind/lua_reply.h"
#include "bind/lua_result.h"
#include "bind/lua_server.h"
#include "bind/lua_step.h"
#include "bind/lua_store.h"
#include "face/module.h"
#include "store/long_read.h"

#define WRITE_NAME "keywatch.core.write"
#define WRITE_VISITS (KW_WORK_TURN / 4) /* as in lua_read.c */

typedef enum write_kind { WRITE_DELETE, WRITE_TXN, WRITE_REVOKE } write_kind;

static const char *const kinds[] = {
    [WRITE_DELETE] = "delete", [WRITE_TXN] = "txn", [WRITE_REVOKE] = "lease_revoke"};

#define UP_KIND (KW_UP_COUNT + 1) /* the kind: an upvalue after those of all methods */

static write_kind kind_of(lua_State *L) {
  return (write_kind)lua_tointeger(L, lua_upvalueindex(UP_KIND));
}

/* A write of the store, or a transaction that only reads. The object has a reference, and the store has one until the
 * write has ended. */
typedef struct write_job {
  int references;
  write_kind kind;
  kw_store *store; /* NULL: closed, or the write has ended */
  bool is_durable;
  bool has_ended;
  int rc; /* valid once it has ended */
  kw_arena arena;
  kw_op op;
  kw_reply reply;     /* its records are retained */
  kw_long_read *read; /* the transaction only reads, and has not ended; or NULL */
  int64_t revision;   /* after a revocation */
  uint64_t ticket;    /* for the write itself, and for the writes that it has seen */
} write_job;

typedef struct lua_write {
  write_job *job;
} lua_write;

/* {====== The op, copied ====== */

static bool copy_bytes(kw_arena *arena, kw_slice *bytes) {
  uint8_t *copy = bytes->len == 0 ? NULL : kw_arena_alloc(arena, bytes->len);
  if (bytes->len == 0) return true;
  if (copy == NULL) return false;
  memcpy(copy, bytes->data, bytes->len);
  *bytes = kw_slice_of(copy, bytes->len);
  return true;
}

static bool copy_range(kw_arena *arena, kw_range *range) {
  return copy_bytes(arena, &range->key) && copy_bytes(arena, &range->end);
}

static bool copy_op(kw_arena *arena, kw_op *op);

static bool copy_ops(kw_arena *arena, const kw_op **ops, size_t n) {
  kw_op *copy = kw_arena_array(arena, n, sizeof *copy);
  if (copy == NULL) return n == 0;
  for (size_t i = 0; i < n; i++) {
    copy[i] = (*ops)[i];
    if (!copy_op(arena, &copy[i])) return false;
  }
  *ops = copy;
  return true;
}

static bool copy_compares(kw_arena *arena, kw_txn_op *txn) {
  kw_compare *copy = kw_arena_array(arena, txn->n_compares, sizeof *copy);
  if (copy == NULL) return txn->n_compares == 0;
  for (size_t i = 0; i < txn->n_compares; i++) {
    copy[i] = txn->compares[i];
    if (!copy_range(arena, &copy[i].range) || !copy_bytes(arena, &copy[i].value)) return false;
  }
  txn->compares = copy;
  return true;
}

/* Replaces everything that an op borrows by copies in the arena. Returns false if memory is short. */
static bool copy_op(kw_arena *arena, kw_op *op) {
  switch (op->kind) {
    case KW_OP_RANGE: return copy_range(arena, &op->range.range);
    case KW_OP_PUT: return copy_bytes(arena, &op->put.key) && copy_bytes(arena, &op->put.value);
    case KW_OP_DELETE: return copy_range(arena, &op->delete.range);
    case KW_OP_TXN:
      return copy_compares(arena, &op->txn) &&
             copy_ops(arena, &op->txn.success, op->txn.n_success) &&
             copy_ops(arena, &op->txn.failure, op->txn.n_failure);
    case KW_OP_NONE: break;
  }
  return true;
}

/* }====== */

/* {====== Jobs ====== */

static void end_read(write_job *job) {
  if (job->read != NULL) kw_long_read_free(job->read);
  job->read = NULL;
}

static int on_record(kw_reply *reply, const kw_op *op, const kw_blob *record, void *ctx) {
  write_job *job = ctx;
  (void)op;
  return kw_reply_retain(reply, &job->arena, record);
}

static void drop_reply(write_job *job) {
  kw_reply_release(&job->reply);
  job->reply = (kw_reply){0};
}

static void release_job(write_job *job) {
  if (--job->references > 0) return;
  end_read(job);
  drop_reply(job);
  kw_arena_drop(&job->arena);
  kw_free(job);
}

/* Begins to read the op. Returns KW_OK or KW_ERR_NO_MEMORY. */
static int begin_read(write_job *job, kw_store *store) {
  drop_reply(job); /* the write has become a read */
  job->read = kw_long_read_new(store, &job->op, SIZE_MAX, on_record, job, &job->arena, &job->reply);
  if (job->read == NULL) return KW_ERR_NO_MEMORY;
  job->store = NULL;
  return KW_OK;
}

static void on_end(int rc, void *ctx) {
  write_job *job = ctx;
  if (rc == KW_ONLY_READS) rc = begin_read(job, job->store);
  if (job->read != NULL) return;
  if (rc == KW_OK) kw_store_commit(job->store);
  job->revision = kw_store_applied(job->store);
  job->ticket = kw_store_ticket(job->store);
  job->rc = rc;
  job->has_ended = true;
}

static void on_free(void *ctx) {
  write_job *job = ctx;
  job->store = NULL;
  release_job(job);
}

/* }====== */

/* {====== Arguments ====== */

/* Reads the arguments of a method, into the op of the store or into *lease. */
static int read_arguments(lua_State *L, kw_lua_store *self, write_kind kind,
                          kw_lease_message *lease) {
  switch (kind) {
    case WRITE_DELETE: return kw_bind_read_delete_op(L, &self->arena, &self->op, NULL);
    case WRITE_TXN:
      return kw_bind_read_txn_op(L, self->max_request_bytes, &self->arena, &self->op, NULL);
    case WRITE_REVOKE: kw_bind_read_lease(L, "revoke", lease, NULL); break;
  }
  return KW_OK;
}

/* }====== */

/* {====== Trying ====== */

static int give_false(lua_State *L) {
  lua_pushboolean(L, false);
  return 1;
}

static int try_revoke(lua_State *L, kw_lua_store *self, int64_t id, kw_work *work, bool is_whole) {
  kw_bind_push_revision(L, 0, 0);
  kw_bind_check_open(L); /* again: finalizers may have run */
  if (is_whole) kw_store_finish(self->store);
  if (kw_store_is_busy(self->store)) return give_false(L);
  int rc = kw_store_revoke_within(self->store, id, work);
  if (rc == KW_UNFINISHED) return give_false(L);
  if (rc != KW_OK) return kw_bind_fail_write(L, self, rc);
  kw_store_commit(self->store);
  return kw_bind_give_revision(L, self);
}

/* Pushes false, and whether the op only reads. */
static int give_up(lua_State *L, bool only_reads) {
  lua_pushboolean(L, false);
  lua_pushboolean(L, only_reads);
  return 2;
}

typedef enum try_how {
  TRY,
  TRY_READ, /* if it only reads; others have to wait, in the queue or while the store is busy */
  TRY_WHOLE /* in one piece, even if that takes long; first completes a long write */
} try_how;

static int try_call(lua_State *L, write_kind kind, try_how how) {
  kw_lease_message lease = {0};
  bool is_whole = how == TRY_WHOLE;
  kw_work work = is_whole ? kw_work_without_end() : (kw_work){.left = WRITE_VISITS};
  kw_lua_store *self = kw_bind_enter(L);
  luaL_checkstack(L, 6, "answer");
  int rc = read_arguments(L, self, kind, &lease);
  lua_settop(L, 3);
  bool only_reads = rc == KW_OK && kind == WRITE_TXN && kw_store_only_reads(&self->op);
  bool has_to_wait = how == TRY_READ || (!is_whole && kw_store_is_busy(self->store));
  if (!only_reads && has_to_wait) return give_up(L, false);
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  if (kind == WRITE_REVOKE) return try_revoke(L, self, lease.id, &work, is_whole);
  if (is_whole && !only_reads) kw_store_finish(self->store);
  rc = kw_store_apply_within(self->store, &self->op, SIZE_MAX, &work, &self->arena, &self->reply);
  bool is_done = rc != KW_UNFINISHED && rc != KW_ONLY_READS;
  return is_done ? kw_bind_answer(L, self, rc, KW_ANSWER_REPLY) : give_up(L, only_reads);
}

/* }====== */

/* {====== Beginning ====== */

static int begin(kw_lua_store *self, write_job *job, const kw_lease_message *lease) {
  kw_write_owner owner = {.on_record = on_record, .on_end = on_end, .on_free = on_free, .ctx = job};
  job->store = self->store;
  job->is_durable = kw_store_is_durable(self->store);
  switch (job->kind) {
    case WRITE_DELETE:
    case WRITE_TXN:
      job->op = self->op;
      if (!copy_op(&job->arena, &job->op)) return KW_ERR_NO_MEMORY;
      if (kw_store_only_reads(&job->op)) return begin_read(job, self->store);
      return kw_store_begin(self->store, &job->op, SIZE_MAX, &job->arena, &job->reply, owner);
    case WRITE_REVOKE: return kw_store_begin_revoke(self->store, lease->id, owner);
  }
  return KW_OK;
}

static int begin_call(lua_State *L, write_kind kind) {
  kw_lease_message lease = {0};
  lua_settop(L, 3);
  lua_write *write = kw_new_object(L, WRITE_NAME, sizeof *write, 0);
  kw_lua_store *self = kw_bind_enter(L);
  int rc = read_arguments(L, self, kind, &lease);
  bool only_reads = rc == KW_OK && kind == WRITE_TXN && kw_store_only_reads(&self->op);
  if (!only_reads && kw_store_is_busy(self->store)) return give_false(L);
  write_job *job = rc == KW_OK ? kw_alloc_zeroed(sizeof *job) : NULL;
  if (job == NULL) return kw_bind_fail_write(L, self, rc == KW_OK ? KW_ERR_NO_MEMORY : rc);
  write->job = job;
  job->kind = kind;
  job->references = 1;
  rc = begin(self, job, &lease);
  if (rc != KW_OK) return kw_bind_fail_write(L, self, rc);
  if (job->read == NULL) job->references++; /* the store's reference */
  lua_settop(L, 4);
  return 1;
}

/* }====== */

/* {====== Ending ====== */

static int push_result(lua_State *L, const write_job *job) {
  switch (job->kind) {
    case WRITE_DELETE:
    case WRITE_TXN: kw_bind_push_reply(L, &job->op, &job->reply); break;
    case WRITE_REVOKE: kw_bind_push_revision(L, job->revision, 0); break;
  }
  return 1;
}

static lua_write *check_write(lua_State *L, int arg) {
  return luaL_checkudata(L, arg, WRITE_NAME);
}

/* Returns the ticket that the caller has to wait for, even if its group has failed; 0: none. */
static uint64_t ticket_of(const kw_lua_store *self, const write_job *job) {
  if (self->store == NULL || kw_store_outcome(self->store, job->ticket) == KW_OK) return 0;
  return job->ticket;
}

/* Makes one turn of a read, or all of it. Returns true if it has ended. */
static bool read_on(lua_State *L, write_job *job, bool is_whole) {
  const kw_lua_store *self = kw_bind_enter(L);
  kw_work work = is_whole ? kw_work_without_end() : (kw_work){.left = WRITE_VISITS};
  int rc = kw_long_read_step(self->store, job->read, &work);
  if (rc == KW_UNFINISHED) return false;
  job->ticket = kw_long_read_ticket(job->read);
  end_read(job);
  job->rc = rc;
  job->has_ended = true;
  return true;
}

static int l_take(lua_State *L) {
  lua_write *write = check_write(L, 2);
  luaL_argcheck(L, write->job != NULL, 2, "the write was taken");
  write_job *job = write->job;
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  bool is_closed = self->store == NULL;
  luaL_checkstack(L, 10, "answer");
  if (job->read != NULL && !is_closed && !read_on(L, job, lua_toboolean(L, 3)))
    return give_false(L);
  if (job->rc == KW_STALE) return give_up(L, true);
  if (!job->has_ended && job->store != NULL) return give_false(L);
  if (is_closed && (!job->has_ended || job->is_durable || job->rc != KW_OK))
    return kw_bind_fail(L, self, KW_ERR_CLOSED);
  uint64_t ticket = ticket_of(self, job);
  if (job->rc != KW_OK) return kw_bind_give(L, ticket, kw_bind_fail(L, self, job->rc));
  push_result(L, job);
  release_job(write->job); /* no finalizers run from here on */
  write->job = NULL;
  return kw_bind_give(L, ticket, 1);
}

static int l_has_ended(lua_State *L) {
  const lua_write *write = check_write(L, 1);
  lua_pushboolean(L, write->job == NULL || write->job->store == NULL || write->job->has_ended);
  return 1;
}

static int l_drop(lua_State *L) {
  lua_write *write = check_write(L, 1);
  if (write->job != NULL) release_job(write->job);
  write->job = NULL;
  return 0;
}

/* }====== */

/* {====== The order of waiting writes ====== */

static int l_take_number(lua_State *L) {
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  uint64_t number = self->store == NULL ? 0 : kw_store_take_number(self->store);
  lua_pushnumber(L, (lua_Number)number);
  return 1;
}

/* True if a waiting request of a client has a lower number. */
static bool has_request_before(const kw_lua_store *self, lua_Number number) {
  for (const kw_lua_server *one = self->servers; one != NULL; one = one->next) {
    uint64_t first = kw_server_first_request(one->server);
    if (first != 0 && (lua_Number)first < number) return true;
  }
  return false;
}

/* True if a write with the number at index 2 has to wait. */
static bool must_wait(lua_State *L, const kw_lua_store *self) {
  lua_Number number = luaL_optnumber(L, 2, HUGE_VAL);
  if (self->store == NULL) return false;
  return kw_store_is_busy(self->store) || has_request_before(self, number);
}

static int l_must_wait(lua_State *L) {
  const kw_lua_store *self = kw_bind_find_store(L);
  lua_pushboolean(L, self != NULL && must_wait(L, self));
  return 1;
}

/* Does the step before the next method. Returns true if that method has to wait. */
static bool prepare(lua_State *L, kw_lua_store *self) {
  bool is_usable = self->store != NULL && !self->is_busy && !kw_store_is_inherited(self->store);
  if (is_usable) kw_bind_step_if_due(self);
  bool has_to_wait = must_wait(L, self);
  self->stepped_at = is_usable && !has_to_wait ? kw_bind_now(self) : KW_NOT_STEPPED;
  return has_to_wait;
}

static int l_prepare(lua_State *L) {
  kw_lua_store *self = kw_bind_find_store(L);
  lua_pushboolean(L, self != NULL && prepare(L, self));
  return 1;
}

static int l_set_first_task(lua_State *L) {
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  uint64_t number = (uint64_t)luaL_optnumber(L, 2, 0);
  if (self->store != NULL) kw_store_set_first_task(self->store, number);
  return 0;
}

/* }====== */

/* {====== The tables of methods ====== */

static int l_whole(lua_State *L) {
  return try_call(L, kind_of(L), TRY_WHOLE);
}

static int l_try(lua_State *L) {
  return try_call(L, kind_of(L), TRY);
}

static int l_try_read(lua_State *L) {
  return try_call(L, kind_of(L), TRY_READ);
}

static int l_begin(lua_State *L) {
  return begin_call(L, kind_of(L));
}

const luaL_Reg kw_bind_write_methods[] = {
    {"take", l_take},       {"take_number", l_take_number},       {"must_wait", l_must_wait},
    {"prepare", l_prepare}, {"set_first_task", l_set_first_task}, {NULL, NULL}};

/* Adds the method of a kind, "<verb><kind>", to the table at `methods`. */
static void add_call(lua_State *L, int methods, int push, const char *verb, write_kind kind,
                     lua_CFunction call) {
  lua_pushfstring(L, "%s%s", verb, kinds[kind]);
  kw_bind_push_upvalues(L, push);
  lua_pushinteger(L, kind);
  lua_pushcclosure(L, call, UP_KIND);
  lua_rawset(L, methods);
}

void kw_bind_add_write_calls(lua_State *L, int methods, int push) {
  for (size_t kind = 0; kind < KW_LENGTH(kinds); kind++) {
    add_call(L, methods, push, "", (write_kind)kind, l_whole);
    add_call(L, methods, push, "try_", (write_kind)kind, l_try);
    add_call(L, methods, push, "try_read_", (write_kind)kind, l_try_read);
    add_call(L, methods, push, "begin_", (write_kind)kind, l_begin);
  }
}

static const luaL_Reg methods[] = {{"has_ended", l_has_ended}, {NULL, NULL}};
static const luaL_Reg meta[] = {{"__gc", l_drop}, {NULL, NULL}};

void kw_bind_add_write_class(lua_State *L) {
  kw_add_class(L, WRITE_NAME, meta, methods);
}

/* }====== */
