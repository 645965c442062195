/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/content.h"

#include "base/big_endian.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "codec/keyvalue.h"
#include "model/error.h"

#define MAGIC "kwcache"
#define MAGIC_BYTES (sizeof MAGIC - 1)
#define VERSION 1
#define MAX_SECONDS (UINT64_C(1) << 53) /* since 1970: every Lua has whole numbers up to this */

enum {
  SIZE = 8,
  CLUSTER = 16,
  REVISION = 24,
  CONFIRMED_AT = 32,
  COUNT = 40,
  KEY_BYTES = 48,
  END_BYTES = 52
};

void kw_content_put_header(uint8_t *to, const kw_content_meta *meta, const kw_range *range,
                           uint64_t size, uint64_t n) {
  memcpy(to, MAGIC, MAGIC_BYTES);
  to[MAGIC_BYTES] = VERSION;
  kw_big_endian_put64(to + SIZE, size);
  kw_big_endian_put64(to + CLUSTER, meta->cluster);
  kw_big_endian_put64(to + REVISION, (uint64_t)meta->revision);
  kw_big_endian_put64(to + CONFIRMED_AT, (uint64_t)meta->confirmed_at);
  kw_big_endian_put64(to + COUNT, n);
  kw_big_endian_put32(to + KEY_BYTES, (uint32_t)range->key.len);
  kw_big_endian_put32(to + END_BYTES, (uint32_t)range->end.len);
}

/* {====== The bytes ====== */

/* Checks header and checksum. Returns NULL, or what is wrong. */
static const char *check_frame(kw_slice file) {
  const uint8_t *at = file.data;
  if (file.len < KW_CONTENT_HEADER + KW_CONTENT_CHECKSUM || memcmp(at, MAGIC, MAGIC_BYTES) != 0)
    return "is not the file of a cache";
  if (at[MAGIC_BYTES] != VERSION) return "has the format of another version of keywatch";
  if (kw_big_endian_get64(at + SIZE) != file.len) return "is incomplete";
  size_t body = file.len - KW_CONTENT_CHECKSUM;
  if (kw_crc32c(0, kw_slice_of(at, body)) != kw_big_endian_get32(at + body)) return "is damaged";
  return NULL;
}

/* Takes `len` bytes from the front of a slice. Returns false if the slice is shorter. */
static bool take(kw_slice *rest, uint64_t len, kw_slice *taken) {
  if (len > rest->len) return false;
  *taken = kw_slice_of(rest->data, (size_t)len);
  *rest = kw_slice_of(rest->data + len, rest->len - (size_t)len);
  return true;
}

/* Reads the kvs, which are the rest of the file. */
static int read_kvs(kw_content *content, const kw_range *range, kw_slice rest) {
  kw_slice length, record;
  while (rest.len > 0) {
    if (!take(&rest, KW_CONTENT_LENGTH, &length) ||
        !take(&rest, kw_big_endian_get32(length.data), &record))
      return KW_ERR_CORRUPT;
    if (!kw_reserve(&content->kvs, &content->cap, content->n + 1, sizeof *content->kvs))
      return KW_ERR_NO_MEMORY;
    kw_kv *kv = &content->kvs[content->n];
    if (!kw_keyvalue_decode(record, kv) || !kw_kv_is_sound(kv, range, content->meta.revision))
      return KW_ERR_CORRUPT;
    if (content->n > 0 && kw_slice_compare(kv[-1].key, kv->key) >= 0) return KW_ERR_CORRUPT;
    content->n++;
  }
  return KW_OK;
}

/* Reads the rest of a file whose header and checksum are sound. *fault is the text for KW_ERR_CORRUPT. */
static int read_body(kw_content *content, const kw_range *range, const char **fault) {
  const uint8_t *at = content->bytes;
  kw_slice rest =
      kw_slice_of(at + KW_CONTENT_HEADER, content->size - KW_CONTENT_HEADER - KW_CONTENT_CHECKSUM);
  kw_slice key, end;
  uint64_t revision = kw_big_endian_get64(at + REVISION);
  uint64_t confirmed_at = kw_big_endian_get64(at + CONFIRMED_AT);
  *fault = "is malformed";
  if (revision < 1 || revision > KW_MAX_REVISION || confirmed_at > MAX_SECONDS)
    return KW_ERR_CORRUPT;
  content->meta = (kw_content_meta){.cluster = kw_big_endian_get64(at + CLUSTER),
                                    .revision = (int64_t)revision,
                                    .confirmed_at = (int64_t)confirmed_at};
  if (!take(&rest, kw_big_endian_get32(at + KEY_BYTES), &key) ||
      !take(&rest, kw_big_endian_get32(at + END_BYTES), &end))
    return KW_ERR_CORRUPT;
  if (!kw_slice_equal(key, range->key) || !kw_slice_equal(end, range->end)) {
    *fault = "has another range of keys";
    return KW_ERR_CORRUPT;
  }
  int rc = read_kvs(content, range, rest);
  if (rc == KW_OK && content->n != kw_big_endian_get64(at + COUNT)) rc = KW_ERR_CORRUPT;
  return rc;
}

/* }====== */

/* {====== The file ====== */

static int fail(char text[KW_REASON_ROOM], int rc, const char *why) {
  snprintf(text, KW_REASON_ROOM, "%s", why);
  return rc;
}

static int fail_by_errno(char text[KW_REASON_ROOM]) {
  snprintf(text, KW_REASON_ROOM, "cannot be read: %s", strerror(errno));
  return KW_ERR_STORAGE;
}

static int read_bytes(int fd, kw_content *content, char text[KW_REASON_ROOM]) {
  struct stat st;
  if (fstat(fd, &st) < 0) return fail_by_errno(text);
  if (!S_ISREG(st.st_mode)) return fail(text, KW_ERR_CORRUPT, "is not a regular file");
  if (st.st_size > KW_CONTENT_MAX_BYTES) return fail(text, KW_ERR_CORRUPT, "is larger than 1 GiB");
  if (st.st_size == 0) return fail(text, KW_ERR_CORRUPT, "is empty");
  content->bytes = kw_alloc_pages((size_t)st.st_size);
  if (content->bytes == NULL)
    return fail(text, KW_ERR_NO_MEMORY, "takes more memory than there is");
  content->size = (size_t)st.st_size;
  errno = 0;
  if (kw_file_read(fd, content->bytes, content->size, 0)) return KW_OK;
  return errno == 0 ? fail(text, KW_ERR_CORRUPT, "is incomplete") : fail_by_errno(text);
}

static int read_open(int fd, const kw_range *range, kw_content *content,
                     char text[KW_REASON_ROOM]) {
  int rc = read_bytes(fd, content, text);
  if (rc != KW_OK) return rc;
  const char *fault = check_frame(kw_slice_of(content->bytes, content->size));
  if (fault != NULL) return fail(text, KW_ERR_CORRUPT, fault);
  rc = read_body(content, range, &fault);
  if (rc == KW_OK) return KW_OK;
  return fail(text, rc, rc == KW_ERR_CORRUPT ? fault : "takes more memory than there is");
}

/* O_NONBLOCK: opening a named pipe must not block. */
int kw_content_read(const char *path, const kw_range *range, kw_content *content,
                    char text[KW_REASON_ROOM]) {
  *content = (kw_content){0};
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return fail(text, KW_ERR_NOT_FOUND, "does not exist");
  if (fd < 0) return fail_by_errno(text);
  int rc = read_open(fd, range, content, text);
  close(fd);
  if (rc != KW_OK) kw_content_drop(content);
  return rc;
}

void kw_content_drop(kw_content *content) {
  kw_free_pages(content->bytes, content->size);
  kw_free(content->kvs);
  *content = (kw_content){0};
}

/* }====== */
