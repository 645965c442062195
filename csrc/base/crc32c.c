/* SPDX-License-Identifier: MIT */
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/crc32c.h"

/* The effect of four bits on the checksum, for the reflected polynomial 0x82f63b78. */
static const uint32_t nibbles[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

static uint32_t by_table(uint32_t crc, kw_slice bytes) {
  for (size_t i = 0; i < bytes.len; i++) {
    crc ^= bytes.data[i];
    crc = (crc >> 4) ^ nibbles[crc & 15];
    crc = (crc >> 4) ^ nibbles[crc & 15];
  }
  return crc;
}

#if defined(__x86_64__)

#define HAS_INSTRUCTION() __builtin_cpu_supports("sse4.2")
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_WORD __builtin_ia32_crc32di
#define CRC_BYTE __builtin_ia32_crc32qi

#elif defined(__aarch64__) && defined(__linux__) && !defined(__clang__)

#define HAS_INSTRUCTION() ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
#define WITH_INSTRUCTION __attribute__((target("+crc")))
#define CRC_WORD __builtin_aarch64_crc32cx
#define CRC_BYTE __builtin_aarch64_crc32cb

#endif

#ifdef HAS_INSTRUCTION

#define WORD 8
#define BLOCK (4 * WORD) /* between two tests of the end */

/* The register has 64 bits, as the x86 instruction requires, and is always below 2^32. */
WITH_INSTRUCTION static uint64_t add_word(uint64_t crc, const uint8_t *from) {
  uint64_t word;
  memcpy(&word, from, WORD);
  return CRC_WORD(crc, word);
}

WITH_INSTRUCTION static uint32_t by_instruction(uint32_t start, kw_slice bytes) {
  const uint8_t *p = bytes.data;
  uint64_t crc = start;
  size_t left = bytes.len;
  for (; left >= BLOCK; left -= BLOCK, p += BLOCK) {
    crc = add_word(add_word(crc, p), p + WORD);
    crc = add_word(add_word(crc, p + 2 * WORD), p + 3 * WORD);
  }
  for (; left >= WORD; left -= WORD, p += WORD) crc = add_word(crc, p);
  for (; left > 0; left--) crc = CRC_BYTE((uint32_t)crc, *p++);
  return (uint32_t)crc;
}

static uint32_t extend(uint32_t crc, kw_slice bytes) {
  return HAS_INSTRUCTION() ? by_instruction(crc, bytes) : by_table(crc, bytes);
}

#else

static uint32_t extend(uint32_t crc, kw_slice bytes) {
  return by_table(crc, bytes);
}

#endif

uint32_t kw_crc32c(uint32_t crc, kw_slice bytes) {
  return ~extend(~crc, bytes);
}
