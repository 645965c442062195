/* SPDX-License-Identifier: MIT
 *
 * dialed: a client that a loop turns for, with the connection that it has, or is getting. They have its pointer, so
 * whoever opened it keeps the client alive until it has ended.
 *
 * It ends with its connection, whatever the reason: the client is told, the loop's turn ends, and `owner` is set to
 * NULL. A socket that lingers then is the loop's own.
 */
#ifndef KW_UV_DIALED_H
#define KW_UV_DIALED_H

#include "face/engine.h"
#include "uv/address.h"
#include "uv/connection.h"
#include "uv/loop.h"

typedef struct kw_dialed {
  kw_loop *loop;
  const kw_engine *engine;
  kw_client *client;
  kw_address address;
  struct kw_dialed **owner; /* is set to NULL when it ends */
  kw_link link;             /* in the loop's list */
  kw_connection *connection;
} kw_dialed;

/* Zero, or libuv's negative error: then the client was not told of it. */
int kw_dialed_open(kw_dialed **owner, kw_loop *loop, const kw_engine *engine, kw_client *client,
                   const kw_address *address);

/* Closes the connection at once; why, as of kw_connection_close. */
void kw_dialed_close(kw_dialed *dialed, const char *why);

/* Its connection has parted with the client. */
void kw_dialed_free(kw_dialed *dialed);

static inline bool kw_dialed_has_news(const kw_dialed *dialed) {
  return dialed->engine->has_news(dialed->client);
}

#endif
