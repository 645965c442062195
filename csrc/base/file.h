/* SPDX-License-Identifier: MIT
 *
 * file: complete reads and writes at an offset; closing, guarding and comparing descriptors.
 *
 * kw_file_read and kw_file_write repeat the system call after a signal (EINTR) and after a partial read or write. They
 * do not use the file's own position, so that several threads may read one descriptor.
 */
#ifndef KW_BASE_FILE_H
#define KW_BASE_FILE_H

#include "base/common.h"

/* Reads exactly `len` bytes from offset `at`. Returns false if the file ends earlier, or if reading fails; `to` may
 * then be partly filled. */
bool kw_file_read(int fd, void *to, size_t len, int64_t at);

/* Writes all `len` bytes at offset `at`. Returns 0, or the errno of the failed write; some of the bytes may then
 * be in the file. Does not sync. */
int kw_file_write(int fd, const void *bytes, size_t len, int64_t at);

/* Closes a file that no longer has a name. A large file is closed by a new thread: the system then frees all pages of
 * the file, which takes long. */
void kw_file_close_unnamed(int fd);

/* Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed. Otherwise a file that is opened later would get
 * this descriptor, and any code that prints or logs would write to the file. */
void kw_file_guard_standard(void);

typedef enum kw_file_identity {
  KW_FILE_SAME,
  KW_FILE_OTHER,  /* the path names another file, or none */
  KW_FILE_UNKNOWN /* a system call failed, for example for lack of a permission */
} kw_file_identity;

/* Compares a path with the file or directory that is open as `fd`. A relative path begins at the open directory
 * `directory`; if that is AT_FDCWD, at the working directory. */
kw_file_identity kw_file_identify(int directory, const char *path, int fd);

/* True if an errno says that there is no room: on the disk (ENOSPC), in a quota (EDQUOT), or in a file of limited size
 * (EFBIG). */
bool kw_is_no_room(int number);

#endif
