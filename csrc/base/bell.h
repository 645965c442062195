/* SPDX-License-Identifier: MIT
 *
 * bell: wakes an event loop from any thread.
 *
 * A bell may outlive its loop; ringing it then does nothing. Each holder of a bell has a reference. An all-zero bell is
 * no bell: all functions accept it, and do nothing.
 */
#ifndef KW_BASE_BELL_H
#define KW_BASE_BELL_H

#include <stddef.h>

typedef struct kw_bell {
  void (*ring)(void *ctx); /* NULL: there is no bell */
  void (*retain)(void *ctx);
  void (*release)(void *ctx);
  void *ctx;
} kw_bell;

/* Rings the bell, if there is one. May be called by any thread. */
static inline void kw_bell_ring(const kw_bell *bell) {
  if (bell->ring != NULL) bell->ring(bell->ctx);
}

/* Adds a reference. Returns the bell. */
static inline kw_bell kw_bell_retain(const kw_bell *bell) {
  if (bell->ring != NULL) bell->retain(bell->ctx);
  return *bell;
}

/* Gives up a reference. */
static inline void kw_bell_release(const kw_bell *bell) {
  if (bell->ring != NULL) bell->release(bell->ctx);
}

#endif
