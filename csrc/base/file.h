/* SPDX-License-Identifier: MIT
 *
 * file: reads and writes all of a piece of a file at a given offset; and what else concerns descriptors.
 *
 * The functions repeat the system call after a signal (EINTR) and after a short read or write. They do not use the
 * file's own position, so that several threads may read one descriptor.
 */
#ifndef KW_BASE_FILE_H
#define KW_BASE_FILE_H

#include "base/common.h"

/* Reads exactly `len` bytes from offset `at`. Returns false if the file ends before, or if reading fails; `to` is
 * then partly filled. */
bool kw_file_read(int fd, void *to, size_t len, int64_t at);

/* Writes all `len` bytes at offset `at`. Returns 0, or the errno of the failed write; some of the bytes may then
 * be in the file. Does not sync. */
int kw_file_write(int fd, const void *bytes, size_t len, int64_t at);

/* Closes a file that has no name any more. A thread of its own closes a large file: the system then gives all pages of
 * the file back, which takes long. */
void kw_file_close_unnamed(int fd);

/* Opens /dev/null as those of the descriptors 0, 1 and 2 that are closed. A file that is opened later would be one of
 * them otherwise, and any code that prints or logs would write to it. */
void kw_file_guard_standard(void);

typedef enum kw_file_identity {
  KW_FILE_SAME,
  KW_FILE_OTHER,  /* the path means another file, or none */
  KW_FILE_UNKNOWN /* this process cannot decide: it may not see the path, for example */
} kw_file_identity;

/* Compares a path with the file or directory that is open as `fd`. A relative path begins at the directory that is open
 * as `directory`, or at that of the process for AT_FDCWD. */
kw_file_identity kw_file_identify(int directory, const char *path, int fd);

/* True if an errno says that there is no room: on the disk (ENOSPC), in a quota (EDQUOT), or in the file (EFBIG). */
bool kw_is_no_room(int number);

#endif
