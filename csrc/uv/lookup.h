/* SPDX-License-Identifier: MIT
 *
 * lookup: the addresses of a name, looked up while the loop goes on, which is woken at the end.
 *
 * It has a thread of its own, which blocks all signals, and not one of libuv's: for those the loop, and the process,
 * would have to wait before they end, as long as a name server is silent. Whoever is no more interested leaves the
 * thread to itself, which then ends when it may. In a child of the process it is not: there the lookup has failed.
 */
#ifndef KW_UV_LOOKUP_H
#define KW_UV_LOOKUP_H

#include "uv/address.h"
#include "uv/loop.h"

#define KW_LOOKUP_ADDRESSES 32 /* of one name */

typedef struct kw_lookup kw_lookup;

/* Zero, or libuv's negative error. */
int kw_lookup_open(kw_lookup **result, kw_loop *loop, const char *name);

/* Whether it has ended: then `n` is an error, or how many addresses there are. They live as long as the lookup. */
bool kw_lookup_has_ended(kw_lookup *lookup, const kw_address **addresses, int *n);

/* At any time. */
void kw_lookup_close(kw_lookup *lookup);

#endif
