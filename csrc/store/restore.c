/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/restore.h"

#include "base/directory.h"
#include "base/mem.h"
#include "codec/keyvalue.h"
#include "model/error.h"
#include "store/image.h"

#define PATH_ROOM KW_DIRECTORY_ROOM
#define GROUP_RECORDS 4096
#define GROUP_BYTES (4 << 20)
#define MAP_MARGIN (INT64_C(64) << 20)
#define MAP_PER_BYTE                                                                               \
  4 /* of the image: where records of half a page take a page each, and the free ones as many */

typedef struct group {
  kw_blob *records[GROUP_RECORDS];
  size_t n;
  size_t bytes;
} group;

/* The database that is written, and the changes that are written to it next. */
typedef struct target {
  kw_database *database;
  kw_commit_group changes;
} target;

static int refuse(char *text, const char *what, const char *why) {
  snprintf(text, KW_DISK_TEXT, "keywatch: %s: %s", what, why);
  return KW_ERR_STORAGE;
}

/* {====== From the image to the disk ====== */

static void release(group *g) {
  while (g->n > 0) kw_blob_release(g->records[--g->n]);
  g->bytes = 0;
}

static int write_group(target *to, group *g, kw_disk_meta meta) {
  to->changes.meta = meta;
  int rc = kw_database_write(to->database, &to->changes);
  if (rc == KW_OK) rc = kw_database_renew(to->database); /* so that free pages are used again */
  kw_commit_group_clear(&to->changes);
  release(g);
  return rc;
}

/* A record is encoded anew, so that it is one of ours, whoever wrote the image. */
static int add_record(target *to, group *g, kw_revision rev, bool tombstone, const kw_kv *kv) {
  kw_blob *record = kw_keyvalue_encode(kv);
  if (record == NULL) return KW_ERR_NO_MEMORY;
  g->records[g->n++] = record;
  g->bytes += record->len;
  return kw_commit_group_put(&to->changes, rev, tombstone, record) ? KW_OK : KW_ERR_NO_MEMORY;
}

/* Until all is there, what is written is nobody's: the meta of the last group counts. */
static int copy_records(kw_image *image, target *to, group *g, kw_restored *restored) {
  kw_revision rev;
  bool tombstone;
  kw_kv kv;
  int rc = KW_OK;
  while (rc == KW_OK) {
    int found = kw_image_next_record(image, &rev, &tombstone, &kv);
    if (found <= 0) return found;
    restored->records++;
    rc = add_record(to, g, rev, tombstone, &kv);
    if (rc == KW_OK && (g->n == GROUP_RECORDS || g->bytes >= GROUP_BYTES))
      rc = write_group(to, g, kw_image_meta(image));
  }
  return rc;
}

static int copy_leases(kw_image *image, target *to, kw_restored *restored) {
  int64_t id, ttl;
  int found;
  while ((found = kw_image_next_lease(image, &id, &ttl)) > 0) {
    restored->leases++;
    if (!kw_commit_group_put_lease(&to->changes, id, ttl)) return KW_ERR_NO_MEMORY;
  }
  return found;
}

/* The name of a state, see store/rows.h. */
static kw_blob *new_name(kw_slice table, kw_slice key) {
  kw_blob *name = kw_blob_new(table.len + 1 + key.len);
  if (name == NULL) return NULL;
  memcpy(name->bytes, table.data, table.len);
  name->bytes[table.len] = 0;
  if (key.len > 0) memcpy(name->bytes + table.len + 1, key.data, key.len);
  return name;
}

static int add_row(target *to, kw_slice table, kw_slice key, kw_slice bytes) {
  kw_blob *name = new_name(table, key), *value = kw_blob_copy(bytes);
  bool ok = name != NULL && value != NULL && kw_commit_group_put_row(&to->changes, name, value);
  if (name != NULL) kw_blob_release(name);
  if (value != NULL) kw_blob_release(value);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

/* That authentication was enabled is told, and not kept: nobody would heed it. */
static int copy_rows(kw_image *image, target *to, kw_restored *restored) {
  kw_slice table, key, bytes;
  int found;
  while ((found = kw_image_next_row(image, &table, &key, &bytes)) > 0) {
    if (kw_slice_is(table, "auth") && kw_slice_is(key, "authEnabled")) {
      restored->was_protected = bytes.len == 1 && bytes.data[0] == 1;
      continue;
    }
    int rc = add_row(to, table, key, bytes);
    if (rc != KW_OK) return rc;
  }
  return found;
}

static int copy(kw_image *image, target *to, kw_restored *restored) {
  group *g = kw_alloc_zeroed(sizeof *g);
  if (g == NULL) return KW_ERR_NO_MEMORY;
  int rc = copy_records(image, to, g, restored);
  if (rc == KW_OK) rc = copy_leases(image, to, restored);
  if (rc == KW_OK) rc = copy_rows(image, to, restored);
  if (rc == KW_OK) rc = write_group(to, g, kw_image_meta(image));
  release(g);
  kw_free(g);
  kw_disk_meta meta = kw_image_meta(image);
  restored->revision = meta.revision;
  restored->compact_revision = meta.compact_revision;
  return rc;
}

/* }====== */

/* {====== The directory ====== */

/* Absent, or empty. */
static int check_target(const char *directory, char *text) {
  DIR *dir = opendir(directory);
  if (dir == NULL && errno == ENOENT) return KW_OK;
  if (dir == NULL) return refuse(text, directory, strerror(errno));
  const struct dirent *entry;
  bool is_empty = true;
  while ((entry = readdir(dir)) != NULL) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) is_empty = false;
  }
  closedir(dir);
  return is_empty ? KW_OK : refuse(text, directory, "it is there already, and not empty");
}

/* Removes a directory that we made, and the files in it. */
static void discard(const char *directory) {
  char path[PATH_ROOM];
  DIR *dir = opendir(directory);
  const struct dirent *entry;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    if (entry->d_name[0] == '.') continue;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name) < sizeof path)
      unlink(path);
  }
  if (dir != NULL) closedir(dir);
  rmdir(directory);
}

/* A name beside the directory's own. */
static bool name_beside(const char *directory, char path[PATH_ROOM]) {
  size_t len = strlen(directory);
  while (len > 1 && directory[len - 1] == '/') len--;
  return len < PATH_ROOM &&
         (size_t)snprintf(path, PATH_ROOM, "%.*s.partial-XXXXXX", (int)len, directory) < PATH_ROOM;
}

static int fill(kw_image *image, const char *directory, kw_restored *restored, char *text) {
  target to = {0};
  int64_t map = MAP_PER_BYTE * kw_image_size(image) + MAP_MARGIN;
  int rc = kw_database_open(directory, (size_t)map, &to.database, text);
  if (rc != KW_OK) return rc;
  rc = copy(image, &to, restored);
  kw_commit_group_drop(&to.changes);
  kw_database_close(to.database);
  return rc;
}

static int make(kw_image *image, const char *directory, kw_restored *restored, char *text) {
  char partial[PATH_ROOM];
  if (!name_beside(directory, partial)) return refuse(text, directory, strerror(ENAMETOOLONG));
  if (mkdtemp(partial) == NULL) return refuse(text, directory, strerror(errno));
  int rc = fill(image, partial, restored, text);
  if (rc == KW_ERR_NO_SPACE) refuse(text, directory, strerror(ENOSPC));
  if (rc == KW_OK && rename(partial, directory) < 0) rc = refuse(text, directory, strerror(errno));
  if (rc != KW_OK) discard(partial);
  if (rc == KW_OK) kw_directory_sync_parent(directory); /* so that it is so after a crash, too */
  return rc;
}

/* }====== */

/* Reads a row, and adds it to `rows`, whose bounds are those of a store. */
static int walk_row(kw_image *image, kw_rows *rows) {
  kw_slice table, key;
  kw_row_change change = {0};
  int rc = kw_image_next_row(image, &table, &key, &change.bytes);
  if (rc <= 0) return rc;
  kw_blob *name = new_name(table, key);
  if (name == NULL) return KW_ERR_NO_MEMORY;
  change.name = kw_blob_slice(name);
  rc = kw_rows_apply(rows, &change);
  kw_blob_release(name);
  return rc == KW_OK ? 1 : rc;
}

/* Reads everything. */
static int walk(kw_image *image) {
  kw_revision rev;
  bool tombstone;
  kw_kv kv;
  int64_t id, ttl;
  kw_rows rows = {0};
  int rc;
  while ((rc = kw_image_next_record(image, &rev, &tombstone, &kv)) > 0) continue;
  while (rc == 0 && (rc = kw_image_next_lease(image, &id, &ttl)) > 0) rc = 0;
  while (rc == 0 && (rc = walk_row(image, &rows)) > 0) rc = 0;
  kw_rows_drop(&rows);
  return rc;
}

/* An image that is damaged, or has what a store cannot keep, is refused before anything is made of it. */
static int check_image(const char *path, bool skip_hash, char *text) {
  kw_image *image;
  int rc = kw_image_open(path, skip_hash, &image, text);
  if (rc != KW_OK) return rc;
  rc = walk(image);
  kw_image_close(image);
  if (rc == KW_ERR_CORRUPT) refuse(text, path, "it is damaged");
  if (rc == KW_ERR_REQUEST_TOO_LARGE)
    refuse(text, path, "a user or a role has a name of more than 501 bytes");
  if (rc == KW_ERR_NO_SPACE) refuse(text, path, "its users and roles take more than 16 MiB");
  return rc;
}

int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_DISK_TEXT]) {
  kw_image *image;
  *restored = (kw_restored){.compact_revision = -1};
  int rc = check_target(directory, text);
  if (rc == KW_OK) rc = check_image(path, skip_hash, text);
  if (rc == KW_OK) rc = kw_image_open(path, true, &image, text);
  if (rc != KW_OK) return rc;
  rc = make(image, directory, restored, text);
  kw_image_close(image);
  return rc;
}
