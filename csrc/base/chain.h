/* SPDX-License-Identifier: MIT
 *
 * chain: a queue of bytes on their way out. What is small is copied into pieces of the chain's own, what is large stays
 * in its blob, which is held until it has gone out. Bytes never move while they are in a chain.
 * Its account, if it has one, is charged for the pieces, and for blobs that nobody else holds.
 */
#ifndef KW_BASE_CHAIN_H
#define KW_BASE_CHAIN_H

#include <sys/uio.h>

#include "base/account.h"
#include "base/blob.h"

#define KW_CHAIN_COPIED 4096 /* below this a copy costs less than a piece */

typedef struct kw_piece kw_piece;

/* An all-zero chain is empty and ready for use. */
typedef struct kw_chain {
  kw_piece *first;
  kw_piece *last;
  size_t len;
  kw_account *account; /* or NULL */
} kw_chain;

/* Room for `n` bytes in one piece at the end, to be filled in and then committed as far as it was used; NULL if memory
 * is short. Nothing else may be added between the two. */
uint8_t *kw_chain_reserve(kw_chain *chain, size_t n);
void kw_chain_commit(kw_chain *chain, size_t n);

/* Adds bytes, or a part of a blob, which is retained if it is large. False, with nothing added, if memory is short. */
bool kw_chain_add(kw_chain *chain, kw_slice bytes);
bool kw_chain_add_blob(kw_chain *chain, kw_blob *blob, kw_slice part);

/* The same for a blob that the chain alone will hold. */
bool kw_chain_add_own_blob(kw_chain *chain, kw_blob *blob, kw_slice part);

/* Moves the first `n` bytes to the end of another chain. False if memory is short: then some of them have moved. */
bool kw_chain_move(kw_chain *from, size_t n, kw_chain *to);

/* The first bytes, in at most `max` parts; returns how many. */
size_t kw_chain_peek(const kw_chain *chain, struct iovec *parts, size_t max);

/* Forgets the first `n` bytes, or all. */
void kw_chain_skip(kw_chain *chain, size_t n);
void kw_chain_drop(kw_chain *chain);

/* What its account is charged for it; and from now on nobody is. */
size_t kw_chain_charge(const kw_chain *chain);
void kw_chain_discharge(kw_chain *chain);

#endif
