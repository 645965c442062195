/* SPDX-License-Identifier: MIT
 *
 * directory: the names in a directory, and making them last; and what a full disk says.
 */
#ifndef KW_BASE_DIRECTORY_H
#define KW_BASE_DIRECTORY_H

#include "base/common.h"

#define KW_DIRECTORY_ROOM 4096 /* for the path of a directory */
#define KW_NAME_ROOM (KW_DIRECTORY_ROOM + 16)

/* The path of a file in a directory; what has no room is cut off. */
const char *kw_directory_name(const char *directory, const char *file, char name[KW_NAME_ROOM]);

/* Whether an error of the system says that there is no room: on the disk, in a quota, or in a file. */
bool kw_is_no_room(int number);

/* Names last only once their directory was synced. Not all can be, which is no failure. 0 or an error of the system. */
int kw_directory_sync(const char *directory);

/* The same for the name of the directory itself. */
int kw_directory_sync_parent(const char *directory);

#endif
