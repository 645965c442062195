/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <unistd.h>

#include "base/file.h"

bool kw_file_read(int fd, void *to, size_t len, int64_t at) {
  uint8_t *next = to;
  while (len > 0) {
    ssize_t n = pread(fd, next, len, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    next += n;
    at += n;
    len -= (size_t)n;
  }
  return true;
}

int kw_file_write(int fd, const void *bytes, size_t len, int64_t at) {
  const uint8_t *next = bytes;
  while (len > 0) {
    ssize_t n = pwrite(fd, next, len, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    next += n;
    at += n;
    len -= (size_t)n;
  }
  return 0;
}

bool kw_is_no_room(int number) {
  return number == ENOSPC || number == EDQUOT || number == EFBIG;
}
