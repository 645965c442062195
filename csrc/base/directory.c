/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/directory.h"

const char *kw_directory_name(const char *directory, const char *file, char name[KW_NAME_ROOM]) {
  snprintf(name, KW_NAME_ROOM, "%s/%s", directory, file);
  return name;
}

int kw_directory_sync(const char *directory) {
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? 0 : errno;
  int rc = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return rc;
}

int kw_directory_sync_parent(const char *directory) {
  char parent[KW_NAME_ROOM];
  return kw_directory_sync(kw_directory_name(directory, "..", parent));
}
