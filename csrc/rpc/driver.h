/* SPDX-License-Identifier: MIT
 *
 * driver: what a connection knows of its driver, which moves the bytes of the connection: the driver's hooks, and the
 * last deadline that it was given. For rpc/peer.c and rpc/client.c, the two kinds of connection in face/engine.h.
 *
 * If the deadline moves to a later time, as it does after received bytes, the driver is not notified. It then calls
 * `step` once too early, and gets the later deadline after that.
 */
#ifndef KW_RPC_DRIVER_H
#define KW_RPC_DRIVER_H

#include "face/engine.h"
#include "h2/session.h"

typedef struct kw_driver {
  kw_peer_hooks hooks; /* without functions: no driver, Lua moves the bytes */
  int64_t due;         /* deadline that the driver knows; INT64_MAX: none */
} kw_driver;

/* Sets the driver of a connection. The hooks are copied; NULL: no driver. */
static inline void kw_driver_init(kw_driver *driver, const kw_peer_hooks *hooks) {
  *driver = (kw_driver){.due = INT64_MAX};
  if (hooks != NULL) driver->hooks = *hooks;
}

/* False if Lua moves the bytes, and needs no notice. */
static inline bool kw_driver_is_set(const kw_driver *driver) {
  return driver->hooks.on_dirty != NULL;
}

/* Notifies the driver that pending bytes or the connection's state may have changed. */
static inline void kw_driver_touch(const kw_driver *driver) {
  if (driver->hooks.on_dirty != NULL) driver->hooks.on_dirty(driver->hooks.ctx);
}

/* Passes a deadline to the driver, if it is earlier than the one that the driver knows. */
static inline void kw_driver_set_deadline(kw_driver *driver, int64_t due) {
  if (driver->hooks.on_deadline == NULL || due >= driver->due) return;
  driver->due = due;
  driver->hooks.on_deadline(driver->hooks.ctx, due);
}

/* Does what kw_driver_set_deadline and kw_driver_touch do. */
static inline void kw_driver_update(kw_driver *driver, int64_t due) {
  kw_driver_set_deadline(driver, due);
  kw_driver_touch(driver);
}

/* Notes that the driver has called `step`: it knows no deadline until kw_driver_set_deadline passes one. */
static inline void kw_driver_stepped(kw_driver *driver) {
  driver->due = INT64_MAX;
}

/* True if the connection has used up its turn. */
static inline bool kw_driver_is_turn_over(const kw_driver *driver) {
  return driver->hooks.is_turn_over != NULL && driver->hooks.is_turn_over(driver->hooks.ctx);
}

/* Returns the state of a connection for the driver: KW_PEER_WANTS_BYTES, KW_PEER_IS_DONE or 0. */
static inline unsigned kw_driver_state(bool is_done, bool wants_bytes) {
  if (is_done) return KW_PEER_IS_DONE;
  return wants_bytes ? KW_PEER_WANTS_BYTES : 0;
}

#endif
