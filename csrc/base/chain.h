/* SPDX-License-Identifier: MIT
 *
 * chain: a FIFO of bytes that wait to be written to a socket.
 *
 * A chain is a list of pieces. Few bytes are copied into a piece. Many bytes of a blob are not copied: the piece
 * refers to the blob and retains it until they have left the chain. Bytes do not move while they are in a chain.
 *
 * The account of a chain is charged for the memory of the pieces, and for blobs that only the chain holds.
 */
#ifndef KW_BASE_CHAIN_H
#define KW_BASE_CHAIN_H

#include <sys/uio.h>

#include "base/account.h"
#include "base/blob.h"

#define KW_CHAIN_COPIED 4096 /* a shorter part of a blob is copied: that costs less than a piece */

typedef struct kw_piece kw_piece;

/* An all-zero chain is empty and ready for use. The caller sets the account while the chain is empty. */
typedef struct kw_chain {
  kw_piece *first;
  kw_piece *last;
  size_t len;          /* bytes in the chain */
  kw_account *account; /* borrowed, or NULL */
} kw_chain;

/* Returns room for `n` contiguous bytes at the end of the chain, or NULL if memory is short. The caller fills all or
 * a part of the room, and then calls kw_chain_commit, before any other function that adds bytes. Without a commit
 * nothing is added. */
uint8_t *kw_chain_reserve(kw_chain *chain, size_t n);

/* Adds the first `n` bytes of the room that kw_chain_reserve has returned. `n` may be less than was reserved. */
void kw_chain_commit(kw_chain *chain, size_t n);

/* Adds a copy of `bytes`. Returns false, with nothing added, if memory is short. */
bool kw_chain_add(kw_chain *chain, kw_slice bytes);

/* Adds a part of a blob, a slice of its bytes: retains the blob, or copies a part that is shorter than
 * KW_CHAIN_COPIED. Returns false, with nothing added, if memory is short. */
bool kw_chain_add_blob(kw_chain *chain, kw_blob *blob, kw_slice part);

/* Like kw_chain_add_blob, for a blob that only the chain will hold, since the caller releases it next: the account is
 * also charged for the part. */
bool kw_chain_add_own_blob(kw_chain *chain, kw_blob *blob, kw_slice part);

/* Moves the first `n` bytes to the end of another chain. `n` is at most from->len. Returns false if memory is short;
 * some of the bytes may then have moved. */
bool kw_chain_move(kw_chain *from, size_t n, kw_chain *to);

/* Moves all bytes to the end of another chain, without a copy. O(pieces), for the accounts. */
void kw_chain_append(kw_chain *to, kw_chain *from);

/* Fills in at most `max` parts with the first bytes of the chain. Returns the number of parts. The bytes stay in the
 * chain, and the parts are valid until these bytes are removed. */
size_t kw_chain_peek(const kw_chain *chain, struct iovec *parts, size_t max);

/* Removes the first `n` bytes. `n` is at most chain->len. */
void kw_chain_skip(kw_chain *chain, size_t n);

/* Removes all bytes and frees the pieces. The chain is then empty, and ready for use with its account. */
void kw_chain_drop(kw_chain *chain);

/* Removes the first piece. Returns the memory that it took; 0: the chain is empty, without a piece. */
size_t kw_chain_drop_first(kw_chain *chain);

/* Returns what the account is charged for the chain. O(pieces). */
size_t kw_chain_charge(const kw_chain *chain);

/* Credits the account with all that it is charged for the chain. From then on the chain has no account. */
void kw_chain_discharge(kw_chain *chain);

#endif
