/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "disk/journal_segment.h"

#include "base/big_endian.h"
#include "base/crc32c.h"
#include "base/directory.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/error.h"

#define MAGIC "kwjourn"
#define MAGIC_BYTES (sizeof MAGIC - 1)
#define VERSION 1
#define UNFINISHED "journal.new"
#define ZEROED_AT_ONCE (128 << 10) /* bytes */

enum { STORE_ID = 8, SALT = 16, SIZE = 24, CRC = 32, HEADER = 36 };

const char *kw_journal_segment_name(int slot, char name[KW_JOURNAL_NAME_ROOM]) {
  snprintf(name, KW_JOURNAL_NAME_ROOM, "journal-%d", slot & 0xff);
  return name;
}

static const char *path_of(const char *directory, int slot, char path[KW_NAME_ROOM]) {
  char name[KW_JOURNAL_NAME_ROOM];
  return kw_directory_name(directory, kw_journal_segment_name(slot, name), path);
}

/* {====== Durable writes ====== */

static atomic_bool lacks_dsync; /* the kernel or the file system has no RWF_DSYNC */

/* Makes writes bypass the page cache, if the file system can do that: this saves a copy, and the search for dirty
 * pages. */
static void begin_direct(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_DIRECT);
}

/* Makes writes use the page cache. Returns false if they did already. */
static bool leave_direct(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0 && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* A system call filter that does not know pwritev2 may return EPERM. */
static bool is_unsupported(int number) {
  return number == EOPNOTSUPP || number == ENOSYS || number == EINVAL || number == EPERM;
}

/* Writes some of the bytes. *needs_flush becomes true if they are not flushed; a short write may be without its flush.
 * If the file system cannot bypass the page cache, or cannot continue there after a short write, writes use the page
 * cache from now on. */
static ssize_t write_some(int fd, const uint8_t *bytes, size_t len, off_t at, bool *needs_flush) {
  struct iovec all = {.iov_base = (void *)bytes, .iov_len = len};
  ssize_t n;
  if (!lacks_dsync) {
    do n = pwritev2(fd, &all, 1, at, RWF_DSYNC);
    while (n < 0 && is_unsupported(errno) && leave_direct(fd));
    if (n >= 0 && (size_t)n < len) *needs_flush = true;
    if (n >= 0 || !is_unsupported(errno)) return n;
    lacks_dsync = true;
  }
  *needs_flush = true;
  do n = pwrite(fd, bytes, len, at);
  while (n < 0 && is_unsupported(errno) && leave_direct(fd));
  return n;
}

int kw_journal_segment_write(const kw_journal_segment *segment, const void *bytes, size_t len,
                             int64_t at) {
  const uint8_t *next = bytes;
  bool needs_flush = false;
  while (len > 0) {
    ssize_t n = write_some(segment->fd, next, len, (off_t)at, &needs_flush);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    next += n;
    at += n;
    len -= (size_t)n;
  }
  return needs_flush && fdatasync(segment->fd) < 0 ? errno : 0;
}

bool kw_journal_segment_read(const kw_journal_segment *segment, uint8_t block[KW_JOURNAL_BLOCK],
                             int64_t at) {
  return kw_file_read(segment->fd, block, KW_JOURNAL_BLOCK, at) ||
         (leave_direct(segment->fd) && kw_file_read(segment->fd, block, KW_JOURNAL_BLOCK, at));
}

/* }====== */

/* {====== Header ====== */

void kw_journal_segment_put_header(uint8_t block[KW_JOURNAL_BLOCK],
                                   const kw_journal_segment *segment) {
  memset(block, 0, KW_JOURNAL_BLOCK);
  memcpy(block, MAGIC, MAGIC_BYTES);
  block[MAGIC_BYTES] = VERSION;
  kw_big_endian_put64(block + STORE_ID, segment->store_id);
  kw_big_endian_put64(block + SALT, segment->salt);
  kw_big_endian_put64(block + SIZE, (uint64_t)segment->size);
  kw_big_endian_put32(block + CRC, kw_crc32c(0, kw_slice_of(block, CRC)));
}

/* }====== */

/* {====== Opening ====== */

static int refuse(const kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM], int rc,
                  const char *text) {
  char name[KW_JOURNAL_NAME_ROOM];
  snprintf(why, KW_JOURNAL_WHY_ROOM, "%s %s", kw_journal_segment_name(segment->slot, name), text);
  return rc;
}

static int refuse_by_errno(const kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]) {
  char text[KW_JOURNAL_WHY_ROOM / 2];
  int rc = kw_error_of_errno(errno);
  snprintf(text, sizeof text, "cannot be read: %s", strerror(errno));
  return refuse(segment, why, rc, text);
}

static bool is_sound(const kw_journal_segment *segment) {
  return segment->size > KW_JOURNAL_FRAMES && segment->size <= KW_JOURNAL_MAX_BYTES &&
         segment->size % KW_JOURNAL_BLOCK == 0;
}

static int read_header(kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]) {
  uint8_t header[HEADER] = {0}; /* zeros, if the file is shorter: not a header */
  errno = 0;
  if (!kw_file_read(segment->fd, header, HEADER, 0) && errno != 0)
    return refuse_by_errno(segment, why);
  uint32_t crc = kw_crc32c(0, kw_slice_of(header, CRC));
  if (memcmp(header, MAGIC, MAGIC_BYTES) != 0 || kw_big_endian_get32(header + CRC) != crc)
    return refuse(segment, why, KW_ERR_CORRUPT, "has a damaged header");
  if (header[MAGIC_BYTES] != VERSION)
    return refuse(segment, why, KW_ERR_CORRUPT, "was written by a newer version of keywatch");
  segment->store_id = kw_big_endian_get64(header + STORE_ID);
  segment->salt = kw_big_endian_get64(header + SALT);
  segment->size = (int64_t)kw_big_endian_get64(header + SIZE);
  return is_sound(segment) ? KW_OK : refuse(segment, why, KW_ERR_CORRUPT, "has a damaged header");
}

static int read_file(kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]) {
  struct stat st;
  if (fstat(segment->fd, &st) < 0) return refuse_by_errno(segment, why);
  if (!S_ISREG(st.st_mode)) return refuse(segment, why, KW_ERR_CORRUPT, "is not a regular file");
  int rc = read_header(segment, why);
  if (rc == KW_OK && st.st_size < segment->size)
    rc = refuse(segment, why, KW_ERR_CORRUPT, "is truncated");
  return rc;
}

/* O_NONBLOCK: opening a named pipe must not block. */
int kw_journal_segment_open(const char *directory, int slot, bool for_reading,
                            kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]) {
  char path[KW_NAME_ROOM];
  int flags = (for_reading ? O_RDONLY : O_RDWR) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  *segment = (kw_journal_segment){.slot = slot};
  segment->fd = open(path_of(directory, slot, path), flags);
  if (segment->fd < 0) return errno == ENOENT ? KW_ERR_NOT_FOUND : refuse_by_errno(segment, why);
  int rc = read_file(segment, why);
  if (rc == KW_OK && !for_reading) begin_direct(segment->fd);
  if (rc != KW_OK) kw_journal_segment_close(segment);
  return rc;
}

void kw_journal_segment_close(kw_journal_segment *segment) {
  if (segment->fd >= 0) close(segment->fd);
  segment->fd = -1;
}

int64_t kw_journal_segment_bytes_of(const char *directory, int slot) {
  char path[KW_NAME_ROOM];
  struct stat st;
  if (stat(path_of(directory, slot, path), &st) < 0) return 0;
  return st.st_size < KW_JOURNAL_MAX_BYTES ? (int64_t)st.st_size : KW_JOURNAL_MAX_BYTES;
}

void kw_journal_segment_remove(const char *directory, int slot) {
  char path[KW_NAME_ROOM];
  unlink(path_of(directory, slot, path));
}

void kw_journal_segment_remove_unfinished(const char *directory) {
  char path[KW_NAME_ROOM];
  unlink(kw_directory_name(directory, UNFINISHED, path));
}

/* }====== */

/* {====== Making ====== */

/* True if the file system has space for twice the segment: LMDB needs space, too, and must not run out of it because a
 * segment is being made. */
static bool has_room(const char *directory, int64_t size) {
  struct statvfs fs;
  return statvfs(directory, &fs) < 0 || (uint64_t)fs.f_bavail * fs.f_frsize >= 2 * (uint64_t)size;
}

/* Makes the disk write these bytes now, so that a later flush does not wait for them. Returns 0; or an errno, which the
 * later flush would no longer report. */
static int write_back(int fd, int64_t at, size_t len) {
  unsigned how = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (sync_file_range(fd, (off_t)at, (off_t)len, how) == 0) return 0;
  return errno == EIO || kw_is_no_room(errno) ? errno : 0;
}

/* Writes small pieces: the flush of a frame waits for everything that is before it in the disk's queue. */
static int write_zeros(const kw_journal_segment *segment) {
  uint8_t *zeros = kw_alloc_zeroed(ZEROED_AT_ONCE);
  int number = zeros == NULL ? ENOMEM : 0;
  for (int64_t at = KW_JOURNAL_FRAMES; number == 0 && at < segment->size; at += ZEROED_AT_ONCE) {
    size_t len = kw_min_size(ZEROED_AT_ONCE, (size_t)(segment->size - at));
    number = kw_file_write(segment->fd, zeros, len, at);
    if (number == 0) number = write_back(segment->fd, at, len);
  }
  kw_free(zeros);
  return number;
}

static int write_file(const kw_journal_segment *segment) {
  uint8_t block[KW_JOURNAL_BLOCK];
  kw_journal_segment_put_header(block, segment);
  int number = kw_file_write(segment->fd, block, sizeof block, 0);
  if (number == 0) number = write_zeros(segment);
  return number == 0 && fsync(segment->fd) < 0 ? errno : number;
}

/* Gives the finished file its name. Syncs the directory, whose descriptor is `fd`: otherwise a crash could lose the
 * name, and with it the frames of the segment. */
static int give_name(const char *directory, int fd, const char *unfinished, int slot) {
  char path[KW_NAME_ROOM];
  if (rename(unfinished, path_of(directory, slot, path)) < 0) return errno;
  int number = kw_directory_sync_open(fd);
  if (number != 0) unlink(path);
  return number;
}

static int error_of(int number) {
  return number == 0 ? KW_OK : number == ENOMEM ? KW_ERR_NO_MEMORY : kw_error_of_errno(number);
}

/* The directory is open before anything is written: otherwise the whole file might be written in vain, for lack of a
 * descriptor. */
static int make_file(const char *directory, int fd, kw_journal_segment *segment) {
  char path[KW_NAME_ROOM];
  kw_directory_name(directory, UNFINISHED, path);
  segment->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (segment->fd < 0) return errno;
  int number = write_file(segment);
  if (number == 0) number = give_name(directory, fd, path, segment->slot);
  if (number == 0) {
    begin_direct(segment->fd);
    return 0;
  }
  kw_journal_segment_close(segment);
  unlink(path);
  return number;
}

int kw_journal_segment_make(const char *directory, kw_journal_segment *segment) {
  int fd;
  segment->fd = -1;
  if (!has_room(directory, segment->size)) return KW_ERR_NO_SPACE;
  if (!kw_random_draw(&segment->salt)) return kw_error_storage(errno);
  int number = kw_directory_open(directory, &fd);
  if (number == 0) number = make_file(directory, fd, segment);
  if (fd >= 0) close(fd);
  return error_of(number);
}

/* }====== */
