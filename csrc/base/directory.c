/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"

const char *kw_directory_name(const char *directory, const char *file, char name[KW_NAME_ROOM]) {
  snprintf(name, KW_NAME_ROOM, "%s/%s", directory, file);
  return name;
}

int kw_directory_make_parents(const char *path) {
  char above[KW_DIRECTORY_ROOM];
  int rc = 0;
  strcpy(above, path);
  for (char *end = above; rc == 0 && *end != 0 && (end = strchr(end + 1, '/')) != NULL;
       *end = '/') {
    *end = 0;
    if (mkdir(above, 0700) == 0) {
      rc = kw_directory_sync_parent(above);
    } else if (errno != EEXIST) {
      rc = errno;
    }
  }
  return rc;
}

int kw_directory_open(const char *directory, int *fd) {
  *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return *fd >= 0 ? 0 : errno;
}

int kw_directory_sync_open(int fd) {
  return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

int kw_directory_sync(const char *directory) {
  int fd, rc = kw_directory_open(directory, &fd);
  if (rc == 0) rc = kw_directory_sync_open(fd);
  if (fd >= 0) close(fd);
  return rc;
}

/* Syncs the file system of a directory. */
static int sync_file_system(const char *directory) {
  int fd, rc = kw_directory_open(directory, &fd);
  if (rc != 0) return rc;
  rc = syncfs(fd) == 0 ? 0 : errno;
  close(fd);
  return rc;
}

int kw_directory_sync_parent(const char *directory) {
  char parent[KW_NAME_ROOM];
  int rc = kw_directory_sync(kw_directory_name(directory, "..", parent));
  return rc == EACCES ? sync_file_system(directory) : rc;
}
