/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "bind/lua_step.h"

#include "bind/lua_peer.h"

#define MAX_SECONDS 9e12 /* a time in milliseconds fits an int64_t with room to spare */

/* {====== Time ====== */

int64_t kw_bind_now(const kw_lua_store *self) {
  return self->is_manual ? self->now : kw_bind_clock_ms();
}

int64_t kw_bind_now_rounded_up(const kw_lua_store *self) {
  return self->is_manual ? self->now : kw_bind_clock_ms() + 1;
}

int64_t kw_bind_to_ms(lua_State *L, const char *what, double seconds) {
  if (!(fabs(seconds) < MAX_SECONDS))
    luaL_error(L, "%s: a time of %f seconds is out of range", what, seconds);
  return (int64_t)llround(seconds * 1000);
}

/* }====== */

/* {====== The work that is due ====== */

static int64_t deadline_of(const kw_lua_store *self) {
  return self->hub != NULL ? kw_hub_deadline(self->hub) : kw_store_deadline(self->store);
}

static bool step(kw_lua_store *self, int64_t now) {
  return self->hub != NULL ? kw_hub_step(self->hub, now) : kw_store_step(self->store, now);
}

int64_t kw_bind_step_if_due(kw_lua_store *self) {
  if (kw_store_is_durable(self->store) && !self->is_busy) kw_store_poll(self->store);
  int64_t deadline = deadline_of(self);
  if (deadline == KW_NEVER || self->is_busy) return deadline;
  int64_t now = kw_bind_now(self);
  if (deadline > now) return deadline;
  step(self, now);
  return deadline_of(self);
}

kw_lua_store *kw_bind_enter(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  bool has_stepped = self->stepped_at != KW_NOT_STEPPED && self->stepped_at == kw_bind_now(self);
  self->stepped_at = KW_NOT_STEPPED;
  if (!has_stepped) kw_bind_step_if_due(self);
  return self;
}

/* Does a step of the work that is due, and submits writes to the commit thread. Sets the seconds until the next work is
 * due. Returns false if there are none: no work is waiting, the clock is manual and no work is due, or the store is
 * busy. */
static bool run_due(kw_lua_store *self, double *seconds) {
  if (self->is_busy) return false;
  kw_bind_step_if_due(self);
  kw_store_flush(self->store);
  int64_t deadline = deadline_of(self), now = kw_bind_now(self);
  *seconds = deadline <= now ? 0 : (double)(deadline - now) / 1000;
  return deadline <= now || (deadline != KW_NEVER && !self->is_manual);
}

/* }====== */

static int l_deadline(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int64_t deadline = deadline_of(self);
  if (deadline == KW_NEVER) {
    lua_pushnil(L);
    return 1;
  }
  if (deadline == INT64_MIN) deadline = kw_bind_now(self);
  lua_pushnumber(L, (lua_Number)deadline / 1000);
  return 1;
}

static int l_step(lua_State *L) {
  kw_lua_store *self = kw_bind_check_open(L);
  int64_t now =
      lua_isnoneornil(L, 2) ? kw_bind_now(self) : kw_bind_to_ms(L, "step", luaL_checknumber(L, 2));
  if (self->is_manual && now > self->now) self->now = now;
  lua_pushboolean(L, step(self, now > self->now ? now : self->now));
  return 1;
}

static int l_run_due(lua_State *L) {
  kw_lua_store *self = kw_bind_to_store(L, 1);
  double seconds;
  if (self->store == NULL) {
    lua_pushboolean(L, false);
    return 1;
  }
  kw_bind_check_process(L, self);
  if (run_due(self, &seconds)) {
    lua_pushnumber(L, seconds);
  } else {
    lua_pushnil(L);
  }
  lua_pushboolean(L, kw_store_is_pending(self->store));
  return 2;
}

static int l_is_busy(lua_State *L) {
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  lua_pushboolean(L, self->store != NULL && kw_store_is_busy(self->store));
  return 1;
}

static int l_is_compacting(lua_State *L) {
  const kw_lua_store *self = kw_bind_to_store(L, 1);
  lua_pushboolean(L, self->store != NULL && kw_store_is_compacting(self->store));
  return 1;
}

const luaL_Reg kw_bind_step_methods[] = {{"run_due", l_run_due},
                                         {"is_busy", l_is_busy},
                                         {"is_compacting", l_is_compacting},
                                         {NULL, NULL}};
const luaL_Reg kw_bind_clock_methods[] = {{"deadline", l_deadline}, {"step", l_step}, {NULL, NULL}};
