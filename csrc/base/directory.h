/* SPDX-License-Identifier: MIT
 *
 * directory: paths of the files in a directory, and syncing a directory.
 *
 * A file that was created or renamed has its name after a crash only if its directory was synced since.
 */
#ifndef KW_BASE_DIRECTORY_H
#define KW_BASE_DIRECTORY_H

#include "base/file.h"

#define KW_DIRECTORY_ROOM 4096 /* bytes for the path of a directory, with the 0 at its end */
#define KW_NAME_ROOM (KW_DIRECTORY_ROOM + 16) /* bytes for the path of a file in it */

/* Writes the path of a file in a directory to `name`, and returns `name`. A path that does not fit is cut off; a file
 * name of up to 15 bytes always fits. */
const char *kw_directory_name(const char *directory, const char *file, char name[KW_NAME_ROOM]);

/* Makes the missing directories above a path, with mode 0700, and syncs their names. The path is shorter than
 * KW_DIRECTORY_ROOM. Returns 0; or an errno, and some of the directories may then have been made. */
int kw_directory_make_parents(const char *path);

/* Opens a directory, to sync it later: the sync then cannot fail for lack of a descriptor. *fd becomes a descriptor
 * that the caller closes. Returns 0; or an errno, and *fd is then -1. The errno is EACCES if the process is not allowed
 * to read the directory: a sync needs a descriptor that is open for reading. */
int kw_directory_open(const char *directory, int *fd);

/* Syncs an open directory. Returns 0 or an errno. Returns 0, too, if the file system cannot sync directories
 * (EINVAL). */
int kw_directory_sync_open(int fd);

/* Opens and syncs a directory. Returns 0 or an errno. */
int kw_directory_sync(const char *directory);

/* Syncs the parent of a directory, so that the name of the directory itself is durable. A parent that the process is
 * not allowed to read is synced with all of its file system. Returns 0 or an errno. */
int kw_directory_sync_parent(const char *directory);

#endif
