/* SPDX-License-Identifier: MIT
 *
 * lookup: resolves a host name without blocking the loop. The end of the lookup wakes the loop.
 *
 * Each lookup has its own thread, which blocks all signals. libuv's thread pool is not used: the loop and the process
 * would have to wait for it before they can end, as long as a name server does not answer. When a lookup is closed
 * early, its thread continues detached and frees the memory at its end. In a forked child the thread does not exist:
 * there the lookup has failed with UV_ECANCELED.
 */
#ifndef KW_UV_LOOKUP_H
#define KW_UV_LOOKUP_H

#include "uv/address.h"
#include "uv/loop.h"

#define KW_LOOKUP_ADDRESSES 32 /* limit of addresses of one name */

typedef struct kw_lookup kw_lookup;

/* Starts a lookup of a host name, which is copied. Returns 0, and *result is the lookup, which the caller closes; or
 * returns libuv's negative error. */
int kw_lookup_open(kw_lookup **result, kw_loop *loop, const char *name);

/* True if the lookup has ended. Then *n is libuv's negative error, or the number of addresses. *addresses points into
 * the lookup, and is valid until the lookup is closed. The addresses have port 0. */
bool kw_lookup_has_ended(kw_lookup *lookup, const kw_address **addresses, int *n);

/* Closes the lookup, ended or not. Never waits for the thread. */
void kw_lookup_close(kw_lookup *lookup);

#endif
