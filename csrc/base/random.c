/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/random.h>

#include "base/random.h"

bool kw_random_draw(uint64_t *number) {
  ssize_t n;
  do n = getrandom(number, sizeof *number, 0);
  while (n < 0 && errno == EINTR);
  return n == (ssize_t)sizeof *number;
}
