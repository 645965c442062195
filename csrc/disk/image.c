/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/image.h"

#include "base/big_endian.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "codec/keyvalue.h"
#include "codec/revision_key.h"
#include "codec/wire.h"
#include "disk/bolt.h"
#include "model/error.h"

#define LEASE_BYTES 24
#define SECTOR 512 /* divides the size of a bbolt file: a SHA-256 after it is noticed */
#define CHUNK (64 * 1024)

enum { LEASE_ID = 1, LEASE_TTL = 2 };

/* {====== Writing ====== */

static int write_records(kw_bolt_writer *writer, const kw_image_source *source) {
  uint8_t key[KW_REVISION_KEY_ROOM];
  kw_database_entry entry;
  int rc = kw_bolt_begin(writer, kw_slice_text("key"));
  while (rc == KW_OK) {
    if (source->must_end(source->ctx)) return KW_ERR_CANCELLED;
    int found = source->next_record(source->ctx, &entry);
    if (found <= 0) return found;
    rc = kw_bolt_put(writer, kw_revision_key_put(key, entry.rev, entry.tombstone), entry.record);
  }
  return rc;
}

static int write_leases(kw_bolt_writer *writer, const kw_image_source *source) {
  uint8_t key[8], value[LEASE_BYTES];
  int64_t id, ttl;
  int rc = kw_bolt_begin(writer, kw_slice_text("lease"));
  while (rc == KW_OK) {
    if (source->must_end(source->ctx)) return KW_ERR_CANCELLED;
    int found = source->next_lease(source->ctx, &id, &ttl);
    if (found <= 0) return found;
    kw_big_endian_put64(key, (uint64_t)id);
    uint8_t *to = kw_wire_put_number(value, LEASE_ID, (uint64_t)id);
    to = kw_wire_put_number(to, LEASE_TTL, (uint64_t)ttl);
    rc = kw_bolt_put(writer, kw_slice_of(key, 8), kw_slice_of(value, (size_t)(to - value)));
  }
  return rc;
}

/* etcd completes a compaction that is scheduled but not finished. Ours is in this state while it removes records. */
static int write_meta(kw_bolt_writer *writer, const kw_image_source *source) {
  const kw_commit_meta *meta = &source->meta;
  uint8_t bytes[KW_REVISION_KEY_ROOM];
  int rc = kw_bolt_begin(writer, kw_slice_text("meta"));
  kw_big_endian_put64(bytes, (uint64_t)meta->revision);
  if (rc == KW_OK)
    rc = kw_bolt_put(writer, kw_slice_text("consistent_index"), kw_slice_of(bytes, 8));
  if (rc != KW_OK || meta->compact_revision < 0) return rc;
  kw_slice rev = kw_revision_key_put(bytes, (kw_revision){.main = meta->compact_revision}, false);
  if (meta->compacted_until > meta->compact_revision)
    rc = kw_bolt_put(writer, kw_slice_text("finishedCompactRev"), rev);
  return rc == KW_OK ? kw_bolt_put(writer, kw_slice_text("scheduledCompactRev"), rev) : rc;
}

/* Writes the rows of the table that has the name of the bucket. */
static int write_rows(kw_bolt_writer *writer, const kw_image_source *source, const char *table) {
  size_t len = strlen(table) + 1; /* including the zero between table and key */
  kw_slice name = kw_slice_text(table), bytes;
  int rc = kw_bolt_begin(writer, name);
  while (rc == KW_OK) {
    int found = source->next_row(source->ctx, &name, &bytes);
    if (found < 0) return found;
    if (found == 0 || !kw_slice_begins(name, kw_slice_of(table, len))) return KW_OK;
    rc = kw_bolt_put(writer, kw_slice_of(name.data + len, name.len - len), bytes);
  }
  return rc;
}

typedef int (*write_fn)(kw_bolt_writer *writer, const kw_image_source *source);

/* The buckets of etcd, in bbolt's order: by name. */
static const struct {
  const char *name;
  write_fn write; /* NULL: writes the rows of this name, if there are any */
} buckets[] = {{"alarm", NULL},         {"auth", NULL},    {"authRoles", NULL},
               {"authUsers", NULL},     {"cluster", NULL}, {"key", write_records},
               {"lease", write_leases}, {"members", NULL}, {"members_removed", NULL},
               {"meta", write_meta}};

static int write_file(int fd, const kw_image_source *source, int64_t *size) {
  kw_bolt_writer *writer = kw_bolt_writer_new(fd);
  if (writer == NULL) return KW_ERR_NO_MEMORY;
  int rc = KW_OK;
  for (size_t i = 0; i < KW_LENGTH(buckets) && rc == KW_OK; i++) {
    rc = buckets[i].write != NULL ? buckets[i].write(writer, source)
                                  : write_rows(writer, source, buckets[i].name);
  }
  if (rc == KW_OK) rc = kw_bolt_finish(writer, size);
  kw_bolt_writer_free(writer);
  return rc;
}

static bool never(void *ctx) {
  (void)ctx;
  return false;
}

/* Computes the SHA-256 of the first `size` bytes. */
static int digest_of(int fd, int64_t size, bool (*must_end)(void *ctx), void *ctx,
                     uint8_t digest[KW_SHA256_BYTES]) {
  uint8_t chunk[CHUNK];
  kw_sha256 sha;
  kw_sha256_init(&sha);
  for (int64_t at = 0; at < size; at += CHUNK) {
    size_t n = kw_min_size(CHUNK, (size_t)(size - at));
    if (must_end(ctx)) return KW_ERR_CANCELLED;
    if (!kw_file_read(fd, chunk, n, at)) return kw_error_storage(errno);
    kw_sha256_add(&sha, kw_slice_of(chunk, n));
  }
  kw_sha256_end(&sha, digest);
  return KW_OK;
}

int kw_image_write(int fd, const kw_image_source *source, int64_t *size) {
  uint8_t digest[KW_SHA256_BYTES];
  int rc = write_file(fd, source, size);
  if (rc == KW_OK) rc = digest_of(fd, *size, source->must_end, source->ctx, digest);
  if (rc != KW_OK) return rc;
  int number = kw_file_write(fd, digest, sizeof digest, *size);
  return number == 0 ? KW_OK : kw_error_of_errno(number);
}

/* }====== */

/* {====== Reading ====== */

struct kw_image {
  int fd;
  int64_t size; /* without the SHA-256 */
  kw_bolt_reader *reader;
  kw_commit_meta meta;
  kw_revision last; /* of the last record that was read */
  bool has_records; /* all records were read */
  size_t n_tables;  /* number of tables whose rows were begun */
};

int kw_image_refuse(char text[KW_REASON_ROOM], const char *path, int rc, const char *why) {
  snprintf(text, KW_REASON_ROOM, "keywatch: %s: %s", path, why);
  return rc;
}

static int check_hash(const kw_image *image, const char *path, char *text) {
  uint8_t expected[KW_SHA256_BYTES], digest[KW_SHA256_BYTES];
  bool ok = kw_file_read(image->fd, expected, sizeof expected, image->size) &&
            digest_of(image->fd, image->size, never, NULL, digest) == KW_OK;
  if (!ok) return kw_image_refuse(text, path, KW_ERR_STORAGE, "the file cannot be read");
  if (memcmp(expected, digest, sizeof digest) == 0) return KW_OK;
  return kw_image_refuse(text, path, KW_ERR_CORRUPT,
                         "the file is damaged: its SHA-256 does not match");
}

static int open_file(kw_image *image, const char *path, bool skip_hash, char *text) {
  struct stat st;
  image->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (image->fd < 0 || fstat(image->fd, &st) < 0)
    return kw_image_refuse(text, path, KW_ERR_STORAGE, strerror(errno));
  if (!S_ISREG(st.st_mode))
    return kw_image_refuse(text, path, KW_ERR_STORAGE, "not a regular file");
  bool has_hash = st.st_size % SECTOR == KW_SHA256_BYTES;
  image->size = has_hash ? st.st_size - KW_SHA256_BYTES : st.st_size;
  if (skip_hash) return KW_OK;
  if (!has_hash)
    return kw_image_refuse(
        text, path, KW_ERR_CORRUPT,
        "the file has no SHA-256: it is truncated, or it is etcd's own database file, which "
        "needs --skip-hash-check");
  return check_hash(image, path, text);
}

static int read_compaction(kw_image *image) {
  kw_slice key, value;
  kw_revision rev;
  bool tombstone;
  int64_t finished = -1, scheduled = -1;
  int rc = kw_bolt_seek(image->reader, kw_slice_text("meta"));
  while (rc == KW_OK && (rc = kw_bolt_next(image->reader, &key, &value)) > 0) {
    bool is_finished = kw_slice_is(key, "finishedCompactRev");
    rc = KW_OK;
    if (!is_finished && !kw_slice_is(key, "scheduledCompactRev")) continue;
    if (!kw_revision_key_get(value, &rev, &tombstone) || tombstone) return KW_ERR_CORRUPT;
    *(is_finished ? &finished : &scheduled) = rev.main;
  }
  image->meta.compact_revision = finished > scheduled ? finished : scheduled;
  image->meta.compacted_until = finished >= scheduled ? finished + 1 : 0;
  return rc;
}

static int read_head(kw_image *image) {
  int rc = kw_bolt_open(image->fd, image->size, &image->reader);
  if (rc == KW_OK && !kw_bolt_has(image->reader, kw_slice_text("key"))) rc = KW_ERR_CORRUPT;
  if (rc == KW_OK) rc = read_compaction(image);
  return rc == KW_OK ? kw_bolt_seek(image->reader, kw_slice_text("key")) : rc;
}

int kw_image_open(const char *path, bool skip_hash, kw_image **result, char text[KW_REASON_ROOM]) {
  kw_image *image = kw_alloc_zeroed(sizeof *image);
  if (image == NULL) return KW_ERR_NO_MEMORY;
  int rc = open_file(image, path, skip_hash, text);
  if (rc == KW_OK) {
    rc = read_head(image);
    if (rc == KW_ERR_CORRUPT)
      kw_image_refuse(text, path, rc, "the file is damaged, or is not an image of a store");
  }
  if (rc != KW_OK) {
    kw_image_close(image);
    return rc;
  }
  image->meta.revision = 1;
  *result = image;
  return KW_OK;
}

void kw_image_close(kw_image *image) {
  if (image->reader != NULL) kw_bolt_close(image->reader);
  if (image->fd >= 0) close(image->fd);
  kw_free(image);
}

static bool is_sound(kw_revision rev, bool tombstone, const kw_kv *kv) {
  if (rev.main < 1 || kv->key.len == 0) return false;
  if (tombstone) return true;
  return kv->mod_revision == rev.main && kv->create_revision > 0 &&
         kv->create_revision <= rev.main && kv->version > 0 && kv->version <= KW_MAX_REVISION;
}

static int finish_records(kw_image *image) {
  int64_t floor = image->meta.compact_revision;
  image->has_records = true;
  image->meta.revision = image->last.main > floor ? image->last.main : floor;
  if (image->meta.revision < 1) image->meta.revision = 1;
  return kw_bolt_seek(image->reader, kw_slice_text("lease"));
}

int kw_image_next_record(kw_image *image, kw_revision *rev, bool *tombstone, kw_kv *kv) {
  kw_slice key, record;
  int rc = kw_bolt_next(image->reader, &key, &record);
  if (rc == 0) return finish_records(image);
  if (rc < 0) return rc;
  bool ok = kw_revision_key_get(key, rev, tombstone) &&
            kw_revision_compare(*rev, image->last) > 0 && kw_keyvalue_decode(record, kv) &&
            is_sound(*rev, *tombstone, kv);
  if (!ok) return KW_ERR_CORRUPT;
  if (*tombstone) *kv = (kw_kv){.key = kv->key};
  image->last = *rev;
  return 1;
}

int kw_image_next_lease(kw_image *image, int64_t *id, int64_t *ttl) {
  kw_slice key, value;
  kw_wire_field field;
  assert(image->has_records);
  int rc = kw_bolt_next(image->reader, &key, &value);
  if (rc <= 0) return rc;
  kw_wire_reader reader = kw_wire_read(value);
  *id = *ttl = 0;
  while (kw_wire_next(&reader, &field)) {
    bool is_number = field.type == KW_WIRE_VARINT;
    if (is_number && field.number == LEASE_ID) *id = (int64_t)field.value;
    if (is_number && field.number == LEASE_TTL) *ttl = (int64_t)field.value;
  }
  bool ok = !reader.failed && key.len == 8 && *id != 0 &&
            (uint64_t)*id == kw_big_endian_get64(key.data) && *ttl > 0 && *ttl <= KW_LEASE_MAX_TTL;
  return ok ? 1 : KW_ERR_CORRUPT;
}

int kw_image_next_row(kw_image *image, kw_slice *table, kw_slice *key, kw_slice *bytes) {
  static const char *const tables[] = {"auth", "authRoles", "authUsers"};
  while (true) {
    int rc = image->n_tables == 0 ? 0 : kw_bolt_next(image->reader, key, bytes);
    if (rc > 0) *table = kw_slice_text(tables[image->n_tables - 1]);
    if (rc != 0 || image->n_tables == KW_LENGTH(tables)) return rc;
    rc = kw_bolt_seek(image->reader, kw_slice_text(tables[image->n_tables++]));
    if (rc != KW_OK) return rc;
  }
}

kw_commit_meta kw_image_meta(const kw_image *image) {
  return image->meta;
}

int64_t kw_image_size(const kw_image *image) {
  return image->size;
}

/* }====== */
