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
#include "disk/image.h"
#include "model/error.h"
#include "store/rows.h"

#define PATH_ROOM KW_DIRECTORY_ROOM
#define CHUNK_RECORDS 4096
#define CHUNK_BYTES (4 << 20)
#define MAP_MARGIN (INT64_C(64) << 20)

/* Bytes of the map for each byte of the image: a record of half a page takes a page, and as many pages are free. */
#define MAP_PER_BYTE 4

/* The records of one transaction of the database. The chunk owns them until they are written. */
typedef struct chunk {
  kw_blob *records[CHUNK_RECORDS];
  size_t n;
  size_t bytes;
} chunk;

/* The new database, and the changes that are written to it next. */
typedef struct target {
  kw_database *database;
  kw_commit_group changes;
} target;

static int refuse(char *text, const char *path, const char *why) {
  return kw_image_refuse(text, path, KW_ERR_STORAGE, why);
}

/* {====== From the image to the disk ====== */

static void release(chunk *c) {
  while (c->n > 0) kw_blob_release(c->records[--c->n]);
  c->bytes = 0;
}

static int write_chunk(target *to, chunk *c, kw_commit_meta meta) {
  to->changes.meta = meta;
  int rc = kw_database_write(to->database, &to->changes);
  if (rc == KW_OK) rc = kw_database_renew(to->database); /* so that free pages are reused */
  kw_commit_group_clear(&to->changes);
  release(c);
  return rc;
}

/* Encodes the record again, since the image of another program may have fields in another order, or unknown ones. */
static int add_record(target *to, chunk *c, kw_revision rev, bool tombstone, const kw_kv *kv) {
  kw_blob *record = kw_keyvalue_encode(kv);
  if (record == NULL) return KW_ERR_NO_MEMORY;
  c->records[c->n++] = record;
  c->bytes += record->len;
  return kw_commit_group_put(&to->changes, rev, tombstone, record) ? KW_OK : KW_ERR_NO_MEMORY;
}

/* Only the meta of the last chunk counts, since the directory gets its name only after that chunk is written. */
static int copy_records(kw_image *image, target *to, chunk *c, kw_restored *restored) {
  kw_revision rev;
  bool tombstone;
  kw_kv kv;
  int rc = KW_OK;
  while (rc == KW_OK) {
    int found = kw_image_next_record(image, &rev, &tombstone, &kv);
    if (found <= 0) return found;
    restored->records++;
    rc = add_record(to, c, rev, tombstone, &kv);
    if (rc == KW_OK && (c->n == CHUNK_RECORDS || c->bytes >= CHUNK_BYTES))
      rc = write_chunk(to, c, kw_image_meta(image));
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

/* Reads the next row, with its name in the arena, which is reset first. Returns 1, 0 at the end, or an error. */
static int next_row(kw_image *image, kw_arena *arena, kw_row_change *row) {
  kw_slice table, key;
  int rc = kw_image_next_row(image, &table, &key, &row->bytes);
  if (rc <= 0) return rc;
  kw_arena_reset(arena);
  return kw_rows_name(arena, table, key, &row->name) ? 1 : KW_ERR_NO_MEMORY;
}

static int add_row(target *to, const kw_row_change *row) {
  kw_blob *name = kw_blob_copy(row->name), *bytes = kw_blob_copy(row->bytes);
  bool ok = name != NULL && bytes != NULL && kw_commit_group_put_row(&to->changes, name, bytes);
  if (name != NULL) kw_blob_release(name);
  if (bytes != NULL) kw_blob_release(bytes);
  return ok ? KW_OK : KW_ERR_NO_MEMORY;
}

/* The row that enables authentication is reported, but not copied. */
static int copy_rows(kw_image *image, target *to, kw_arena *arena, kw_restored *restored) {
  static const char enabled[] = "auth\0authEnabled"; /* table, 0, key: see store/rows.h */
  kw_row_change row = {0};
  int found;
  while ((found = next_row(image, arena, &row)) > 0) {
    if (kw_slice_equal(row.name, kw_slice_of(enabled, sizeof enabled - 1))) {
      restored->auth_was_enabled = row.bytes.len == 1 && row.bytes.data[0] == 1;
      continue;
    }
    int rc = add_row(to, &row);
    if (rc != KW_OK) return rc;
  }
  return found;
}

static int copy(kw_image *image, target *to, kw_restored *restored) {
  kw_arena arena = {0};
  chunk *c = kw_alloc_zeroed(sizeof *c);
  if (c == NULL) return KW_ERR_NO_MEMORY;
  int rc = copy_records(image, to, c, restored);
  if (rc == KW_OK) rc = copy_leases(image, to, restored);
  if (rc == KW_OK) rc = copy_rows(image, to, &arena, restored);
  if (rc == KW_OK) rc = write_chunk(to, c, kw_image_meta(image));
  release(c);
  kw_free(c);
  kw_arena_drop(&arena);
  kw_commit_meta meta = kw_image_meta(image);
  restored->revision = meta.revision;
  restored->compact_revision = meta.compact_revision;
  return rc;
}

/* }====== */

/* {====== The directory ====== */

/* Refuses a target that exists, unless it is an empty directory. */
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
  return is_empty ? KW_OK : refuse(text, directory, "the directory exists, and is not empty");
}

/* Removes the directory that fill() has filled, which has only files. */
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

/* Writes the template of a temporary name beside the directory. Returns false if it is too long. */
static bool name_beside(const char *directory, char path[PATH_ROOM]) {
  size_t len = strlen(directory);
  while (len > 1 && directory[len - 1] == '/') len--;
  return len < PATH_ROOM &&
         (size_t)snprintf(path, PATH_ROOM, "%.*s.partial-XXXXXX", (int)len, directory) < PATH_ROOM;
}

static int fill(kw_image *image, const char *directory, kw_restored *restored, char *text) {
  target to = {0};
  int64_t map = MAP_PER_BYTE * kw_image_size(image) + MAP_MARGIN;
  int rc = kw_database_open(directory, (size_t)map, 0, &to.database, text);
  if (rc != KW_OK) return rc;
  rc = copy(image, &to, restored);
  kw_commit_group_drop(&to.changes);
  kw_database_close(to.database);
  return rc;
}

static int make(kw_image *image, const char *directory, kw_restored *restored, char *text) {
  char partial[PATH_ROOM];
  if (!name_beside(directory, partial)) return refuse(text, directory, strerror(ENAMETOOLONG));
  int made = kw_directory_make_parents(partial);
  if (made != 0) return refuse(text, directory, strerror(made));
  if (mkdtemp(partial) == NULL) return refuse(text, directory, strerror(errno));
  int rc = fill(image, partial, restored, text);
  if (rc == KW_ERR_NO_SPACE) refuse(text, directory, strerror(ENOSPC));
  if (rc == KW_ERR_STORAGE && text[0] == 0) {
    kw_fault fault = {KW_FAULT_DATABASE, kw_error_take_number()};
    kw_fault_describe(kw_error_describe(rc)->text, fault, text);
  }
  if (rc == KW_OK && rename(partial, directory) < 0) rc = refuse(text, directory, strerror(errno));
  if (rc != KW_OK) discard(partial);
  if (rc != KW_OK) return rc;
  int number = kw_directory_sync_parent(directory);
  return number == 0 ? KW_OK : refuse(text, directory, strerror(number));
}

/* }====== */

/* {====== The image ====== */

/* Reads the rows into a kw_rows, which has the bounds of a store. */
static int walk_rows(kw_image *image) {
  kw_arena arena = {0};
  kw_rows rows = {0};
  kw_row_change row = {0};
  int rc;
  while ((rc = next_row(image, &arena, &row)) > 0) {
    rc = kw_rows_apply(&rows, &row);
    if (rc != KW_OK) break;
  }
  kw_rows_drop(&rows);
  kw_arena_drop(&arena);
  return rc;
}

/* Reads everything in the image. */
static int walk(kw_image *image) {
  kw_revision rev;
  bool tombstone;
  kw_kv kv;
  int64_t id, ttl;
  int rc;
  while ((rc = kw_image_next_record(image, &rev, &tombstone, &kv)) > 0) continue;
  while (rc == 0 && (rc = kw_image_next_lease(image, &id, &ttl)) > 0) rc = 0;
  return rc == 0 ? walk_rows(image) : rc;
}

/* Refuses an image that is damaged, or has more data than a store can hold. Nothing was written yet. */
static int check_image(const char *path, bool skip_hash, char *text) {
  kw_image *image;
  int rc = kw_image_open(path, skip_hash, &image, text);
  if (rc != KW_OK) return rc;
  rc = walk(image);
  kw_image_close(image);
  if (rc == KW_ERR_CORRUPT) refuse(text, path, "the file is damaged");
  if (rc == KW_ERR_REQUEST_TOO_LARGE)
    refuse(text, path, "a user or a role has a name of more than 501 bytes");
  if (rc == KW_ERR_NO_SPACE) refuse(text, path, "its users and roles take more than 16 MiB");
  return rc;
}

/* }====== */

int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_REASON_ROOM]) {
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
