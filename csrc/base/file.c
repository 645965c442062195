/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#include "base/thread.h"

/* From this size on, closing a file takes a millisecond or more. */
#define LARGE KW_LIMIT(8 << 20, 16 << 10)

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

static void *run_close(void *ctx) {
  close((int)(intptr_t)ctx);
  return NULL;
}

void kw_file_close_unnamed(int fd) {
  struct stat st;
  pthread_t thread;
  bool is_large = fstat(fd, &st) == 0 && st.st_size >= LARGE;
  if (is_large && kw_thread_start(&thread, run_close, (void *)(intptr_t)fd)) {
    pthread_detach(thread);
  } else {
    close(fd);
  }
}

void kw_file_guard_standard(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    int other = open("/dev/null", O_RDWR);
    if (other > STDERR_FILENO) close(other); /* another thread has taken `fd` */
  }
}

kw_file_identity kw_file_identify(int directory, const char *path, int fd) {
  struct stat named, opened;
  if (fstatat(directory, path, &named, 0) < 0)
    return errno == ENOENT ? KW_FILE_OTHER : KW_FILE_UNKNOWN;
  if (fstat(fd, &opened) < 0) return KW_FILE_UNKNOWN;
  bool is_same = named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
  return is_same ? KW_FILE_SAME : KW_FILE_OTHER;
}

bool kw_is_no_room(int number) {
  return number == ENOSPC || number == EDQUOT || number == EFBIG;
}
