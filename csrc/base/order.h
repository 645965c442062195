/* SPDX-License-Identifier: MIT
 *
 * order: compares two numbers. The functions return a negative number, 0 or a positive number.
 *
 * All three-way comparisons are here, in a form that compilers get right. The usual (a > b) - (a < b) is not such a
 * form: where only its sign is used, GCC 12.2 for arm64 with -O1 compares unsigned numbers as signed ones.
 */
#ifndef KW_BASE_ORDER_H
#define KW_BASE_ORDER_H

#include "base/common.h"

static inline int kw_order_unsigned(uint64_t a, uint64_t b) {
  return a < b ? -1 : a > b;
}

static inline int kw_order_signed(int64_t a, int64_t b) {
  return a < b ? -1 : a > b;
}

#endif
