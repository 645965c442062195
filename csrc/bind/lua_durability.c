/* SPDX-License-Identifier: MIT
 *
 * lua_durability: the methods that only durable stores have.
 *
 *   store:read_on(n)          -> reads up to n more records of a store that was just opened: how many have been read,
 *                                and how many there are; or nil and an error
 *   store:settled()           -> the newest settled ticket
 *   store:outcome(ticket)     -> true: its writes are durable; nil and an error: they failed; false: not settled yet
 *   store:wait(ticket)        -> the same, after blocking the thread until the ticket is settled
 *   store:step_compaction()   -> does a step of the due work: whether a compaction is running; nil; and a ticket.
 *                                Or nil and an error: memory was short for the compaction, which continues later
 *   store:checkpoint()        -> true; and a ticket: when that is settled, the database has all that was durable before
 *   store:defragmented()      -> true, or nil and the error of the last defragmentation
 *   store:has_threads()       -> true if threads write the journal and the database
 *   store:has_job(n)          -> of a store without threads: whether worker n, 1 or 2, has a job
 *   store:work(n)             does that job, or nothing if a finalizer calls this inside of another call
 *   store:set_bell(bell)      the threads that write ring this bell whenever they have finished something
 */
#include "face/engine.h"
#include "bind/lua_error.h"
#include "bind/lua_result.h"
#include "bind/lua_store.h"
#include "bind/lua_value.h"

static int l_read_on(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  size_t done, total;
  char text[KW_REASON_ROOM] = "";
  int rc = kw_store_load(self->store, (size_t)luaL_checkinteger(L, 2), &done, &total, text);
  if (rc != KW_OK) {
    kw_bind_fail(L, self, rc);
    kw_bind_set_message(L, text);
    return 2;
  }
  kw_bind_push_int(L, (int64_t)done);
  kw_bind_push_int(L, (int64_t)total);
  return 2;
}

static uint64_t check_ticket(lua_State *L) {
  return (uint64_t)luaL_checknumber(L, 2);
}

static int l_settled(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  kw_store_poll(self->store);
  lua_pushnumber(L, (lua_Number)kw_store_settled(self->store));
  return 1;
}

static int l_outcome(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int rc = kw_store_outcome(self->store, check_ticket(L));
  if (rc != KW_UNSETTLED) return kw_bind_end(L, self, rc);
  lua_pushboolean(L, false);
  return 1;
}

static int l_wait(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  kw_store_finish(self->store);
  return kw_bind_end(L, self, kw_store_wait(self->store, check_ticket(L)));
}

static int l_step_compaction(lua_State *L) {
  kw_store_include_background(kw_bind_check_open(L)->store); /* resumes a paused compaction */
  kw_lua_store *self = kw_bind_enter(L);
  int rc = kw_store_compaction_failure(self->store);
  if (rc != KW_OK) return kw_bind_fail(L, self, rc);
  kw_store_include_background(self->store);
  lua_pushboolean(L, kw_store_is_compacting(self->store));
  return kw_bind_give(L, kw_bind_open_ticket(self), 1);
}

static int l_checkpoint(lua_State *L) {
  kw_lua_store *self = kw_bind_enter(L);
  return kw_bind_end_write(L, self, kw_store_checkpoint(self->store));
}

static int l_defragmented(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  char text[KW_REASON_ROOM];
  int rc = kw_store_defragmented(self->store, text);
  int n = kw_bind_end(L, self, rc);
  if (rc != KW_OK) kw_bind_set_message(L, text);
  return n;
}

static int check_worker(lua_State *L) {
  lua_Integer number = luaL_checkinteger(L, 2);
  luaL_argcheck(L, number >= 1 && number <= KW_STORE_WORKERS, 2, "no such worker");
  return (int)number - 1;
}

static int l_has_threads(lua_State *L) {
  lua_pushboolean(L, kw_store_has_threads(kw_bind_check_open(L)->store));
  return 1;
}

static int l_has_job(lua_State *L) {
  lua_pushboolean(L, kw_store_has_job(kw_bind_check_open(L)->store, check_worker(L)));
  return 1;
}

static int l_work(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int number = check_worker(L);
  if (!self->is_busy) kw_store_work(self->store, number);
  return 0;
}

static int l_set_bell(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  const kw_bell *bell = luaL_checkudata(L, 2, KW_BELL_NAME);
  luaL_argcheck(L, bell->ring != NULL, 2, "the bell was finalized");
  kw_store_set_bell(self->store, kw_bell_retain(bell));
  return 0;
}

const luaL_Reg kw_bind_durability_methods[] = {{"read_on", l_read_on},
                                               {"settled", l_settled},
                                               {"outcome", l_outcome},
                                               {"wait", l_wait},
                                               {"step_compaction", l_step_compaction},
                                               {"defragmented", l_defragmented},
                                               {"set_bell", l_set_bell},
                                               {"checkpoint", l_checkpoint},
                                               {"has_job", l_has_job},
                                               {"has_threads", l_has_threads},
                                               {"work", l_work},
                                               {NULL, NULL}};
