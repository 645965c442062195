/* SPDX-License-Identifier: MIT
 *
 * order: comparisons of numbers in contexts that compilers are known to get wrong. spec/order_spec.lua compiles it with
 * each compiler at each level. Prints the comparisons that are wrong.
 */
#include <stdio.h>

#include "model/kv.h"

static uint64_t numbers[] = {0,         1, 5, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_C(1) << 63,
                             UINT64_MAX};

static void expect(bool is_right, const char *what) {
  if (!is_right) printf("%s: wrong\n", what);
}

static void compare(uint64_t a, uint64_t b) {
  int64_t x = (int64_t)a, y = (int64_t)b;
  expect((kw_order_unsigned(a, b) <= 0) == (a <= b), "unsigned <=");
  expect((kw_order_unsigned(a, b) < 0) == (a < b), "unsigned <");
  expect((kw_order_unsigned(a, b) == 0) == (a == b), "unsigned ==");
  expect((kw_order_signed(x, y) <= 0) == (x <= y), "signed <=");
  expect((kw_order_signed(x, y) < 0) == (x < y), "signed <");
  expect((kw_order_signed(x, y) == 0) == (x == y), "signed ==");
}

/* Returns how many revisions are at or before {5, sub}, as the store's log searches. With (a > b) - (a < b) for the
 * order of subs, GCC 12.2 for arm64 with -O1 fails here. */
__attribute__((noinline)) static size_t count_until(const kw_revision *revs, size_t n,
                                                    uint32_t sub) {
  size_t low = 0, high = n;
  const kw_revision rev = {5, sub};
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (kw_revision_compare(revs[mid], rev) <= 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

int main(void) {
  const kw_revision revs[] = {{1, 0}, {5, 0}, {5, UINT32_C(1) << 31}, {9, 0}};
  expect(count_until(revs, 4, 0) == 2, "a search until {5, 0}");
  expect(count_until(revs, 4, INT32_MAX) == 2, "a search until {5, INT32_MAX}");
  expect(count_until(revs, 4, UINT32_MAX) == 3, "a search until {5, UINT32_MAX}");
  for (size_t i = 0; i < KW_LENGTH(numbers); i++) {
    for (size_t j = 0; j < KW_LENGTH(numbers); j++) compare(numbers[i], numbers[j]);
  }
  return 0;
}
