/* SPDX-License-Identifier: MIT */
#include "base/sha256.h"

#include "base/big_endian.h"

#define BLOCK KW_SHA256_BLOCK
#define LENGTH_AT 56 /* in the last block: the length in bits */

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t v, int by) {
  return v >> by | v << (32 - by);
}

/* The message schedule: the word that each round takes from the block, plus the constant of the round. */
static void spread(uint32_t w[64], const uint8_t *block) {
  for (int i = 0; i < 16; i++) w[i] = kw_big_endian_get32(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
           (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
  for (int i = 0; i < 64; i++) w[i] += constants[i];
}

/* One of 64 rounds. The caller rotates the letters, so that only *d and *h change. */
static void turn(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f,
                 uint32_t g, uint32_t *h, uint32_t with) {
  uint32_t one = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + with;
  uint32_t two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
  *d += one;
  *h = one + two;
}

static void add_block(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64];
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  spread(w, block);
  for (int i = 0; i < 64; i += 8) {
    turn(a, b, c, &d, e, f, g, &h, w[i]);
    turn(h, a, b, &c, d, e, f, &g, w[i + 1]);
    turn(g, h, a, &b, c, d, e, &f, w[i + 2]);
    turn(f, g, h, &a, b, c, d, &e, w[i + 3]);
    turn(e, f, g, &h, a, b, c, &d, w[i + 4]);
    turn(d, e, f, &g, h, a, b, &c, w[i + 5]);
    turn(c, d, e, &f, g, h, a, &b, w[i + 6]);
    turn(b, c, d, &e, f, g, h, &a, w[i + 7]);
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

void kw_sha256_init(kw_sha256 *sha) {
  *sha = (kw_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

/* Fills the rest up with the first bytes, and adds the block once it is complete. Returns how many bytes were used. */
static size_t fill_rest(kw_sha256 *sha, kw_slice bytes) {
  size_t held = sha->len % BLOCK;
  if (held == 0) return 0;
  size_t n = kw_min_size(BLOCK - held, bytes.len);
  memcpy(sha->rest + held, bytes.data, n);
  if (held + n == BLOCK) add_block(sha->state, sha->rest);
  return n;
}

void kw_sha256_add(kw_sha256 *sha, kw_slice bytes) {
  if (bytes.len == 0) return;
  size_t at = fill_rest(sha, bytes);
  sha->len += bytes.len;
  for (; bytes.len - at >= BLOCK; at += BLOCK) add_block(sha->state, bytes.data + at);
  if (at < bytes.len) memcpy(sha->rest, bytes.data + at, bytes.len - at);
}

/* Ends with the padding: the rest, a one bit, zeros, and the length, in one block or two. */
void kw_sha256_end(kw_sha256 *sha, uint8_t digest[KW_SHA256_BYTES]) {
  uint8_t end[2 * BLOCK] = {0};
  size_t held = sha->len % BLOCK, n = held < LENGTH_AT ? 1 : 2;
  memcpy(end, sha->rest, held);
  end[held] = 0x80;
  kw_big_endian_put64(end + n * BLOCK - 8, sha->len << 3);
  for (size_t i = 0; i < n; i++) add_block(sha->state, end + i * BLOCK);
  for (int i = 0; i < 8; i++) kw_big_endian_put32(digest + 4 * i, sha->state[i]);
}
