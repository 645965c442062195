/* SPDX-License-Identifier: MIT */
#include "base/sha1.h"

#include "base/big_endian.h"

#define BLOCK 64
#define LENGTH_AT 56 /* in the last block: the length in bits */

static uint32_t rotate(uint32_t v, int by) {
  return v << by | v >> (32 - by);
}

/* The function and the constant of a round. They change every twenty rounds. */
static uint32_t mix(int round, uint32_t b, uint32_t c, uint32_t d) {
  switch (round / 20) {
    case 0: return ((b & c) | (~b & d)) + 0x5a827999;
    case 1: return (b ^ c ^ d) + 0x6ed9eba1;
    case 2: return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    default: return (b ^ c ^ d) + 0xca62c1d6;
  }
}

static void add_block(uint32_t state[5], const uint8_t *block) {
  uint32_t w[80];
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
  for (int i = 0; i < 16; i++) w[i] = kw_big_endian_get32(block + 4 * i);
  for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  for (int i = 0; i < 80; i++) {
    uint32_t next = rotate(a, 5) + mix(i, b, c, d) + e + w[i];
    e = d;
    d = c;
    c = rotate(b, 30);
    b = a;
    a = next;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
}

/* Adds the end of the padded message: the rest, a one bit, zeros, and the length, in one block or two. */
static void add_end(uint32_t state[5], kw_slice rest, uint64_t len) {
  uint8_t end[2 * BLOCK] = {0};
  size_t n = rest.len < LENGTH_AT ? 1 : 2;
  if (rest.len > 0) memcpy(end, rest.data, rest.len);
  end[rest.len] = 0x80;
  kw_big_endian_put64(end + n * BLOCK - 8, len << 3);
  for (size_t i = 0; i < n; i++) add_block(state, end + i * BLOCK);
}

void kw_sha1(kw_slice bytes, uint8_t digest[KW_SHA1_BYTES]) {
  uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  size_t at = 0;
  for (; bytes.len - at >= BLOCK; at += BLOCK) add_block(state, (const uint8_t *)bytes.data + at);
  add_end(state, (kw_slice){bytes.data + at, bytes.len - at}, bytes.len);
  for (int i = 0; i < 5; i++) kw_big_endian_put32(digest + 4 * i, state[i]);
}
