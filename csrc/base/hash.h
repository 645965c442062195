/* SPDX-License-Identifier: MIT
 *
 * hash: a keyed hash of numbers and of bytes, for tables whose keys a peer chooses.
 *
 * A peer that does not know the seed cannot compute which keys collide: every word of a key is multiplied by a number
 * derived from the seed, and both halves of the product go into the hash. So a seed is a secret (see random.h): no peer
 * may learn the seed, or the state of a random generator that was started with it.
 */
#ifndef KW_BASE_HASH_H
#define KW_BASE_HASH_H

#include "base/slice.h"

#define KW_HASH_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio: odd, irregular bits */

static inline uint64_t kw_hash_swap(uint64_t x) {
  return x >> 32 | x << 32;
}

/* Multiplies two words, and folds the product of 128 bits to 64. */
static inline uint64_t kw_hash_fold(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
#else /* without a 128-bit product: a different hash of the same quality */
  uint64_t a_low = (uint32_t)a, b_low = (uint32_t)b, a_high = a >> 32, b_high = b >> 32;
  return a_low * b_low ^ a_high * b_high ^ kw_hash_swap(a_low * b_high) ^
         kw_hash_swap(a_high * b_low);
#endif
}

/* Returns the hash of a number. */
static inline uint64_t kw_hash_number(uint64_t number, uint64_t seed) {
  return kw_hash_fold(kw_hash_fold(number ^ seed, kw_hash_swap(seed) | 1), KW_HASH_FACTOR);
}

/* Hashes several prefixes of the same bytes: the hash of a longer prefix continues from the shorter one. */
typedef struct kw_hasher {
  const uint8_t *data; /* borrowed */
  uint64_t factor;     /* by which every word is multiplied, a secret */
  uint64_t state;      /* the hash state after `done` bytes */
  size_t done;         /* a multiple of eight */
} kw_hasher;

/* Begins to hash prefixes of `bytes`. */
static inline kw_hasher kw_hasher_begin(kw_slice bytes, uint64_t seed) {
  return (kw_hasher){bytes.data, (kw_hash_swap(seed) ^ KW_HASH_FACTOR) | 1, seed, 0};
}

/* Returns the hash of the first `len` bytes. `len` must not be less than in the previous call. */
static inline uint64_t kw_hasher_until(kw_hasher *hasher, size_t len) {
  uint64_t word;
  for (; hasher->done + 8 <= len; hasher->done += 8) {
    memcpy(&word, hasher->data + hasher->done, 8);
    hasher->state = kw_hash_fold(hasher->state ^ word, hasher->factor);
  }
  word = 0;
  for (size_t i = hasher->done; i < len; i++) word = word << 8 | hasher->data[i];
  return kw_hash_fold(kw_hash_fold(hasher->state ^ word, hasher->factor) ^ len, KW_HASH_FACTOR);
}

/* Returns the hash of bytes. */
static inline uint64_t kw_hash_bytes(kw_slice bytes, uint64_t seed) {
  kw_hasher hasher = kw_hasher_begin(bytes, seed);
  return kw_hasher_until(&hasher, bytes.len);
}

#endif
