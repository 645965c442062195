/* SPDX-License-Identifier: MIT
 *
 * image: a store in one file, in the format of etcd's snapshots: a bbolt file (disk/bolt.h), followed by the SHA-256
 * of that file, 32 bytes.
 *
 *   bucket  keys and values
 *   key     revision, see codec/revision_key.h   ->  the encoded KeyValue; of a tombstone, with only the key
 *   lease   id, 8 bytes, big-endian              ->  leasepb.Lease
 *   meta    "scheduledCompactRev", "finishedCompactRev" -> revision, as above; "consistent_index" -> 8 bytes
 *
 *   auth, authRoles, authUsers   the rows whose name begins with this and a zero byte; the rest of the name is the key
 *
 * The other buckets of etcd are written empty, and are not read: they hold members and alarms, which belong to a
 * server and not to its data.
 */
#ifndef KW_DISK_IMAGE_H
#define KW_DISK_IMAGE_H

#include "disk/database.h"
#include "model/kv.h"

/* {====== Writing ====== */

/* The source of an image's contents. The functions that begin with `next` return 1, 0 at the end, or an error; their
 * results stay valid until the next call of the same function. `ttl` is in seconds. */
typedef struct kw_image_source {
  int (*next_record)(void *ctx, kw_database_entry *entry); /* in rising order of revisions */
  int (*next_lease)(void *ctx, int64_t *id,
                    int64_t *ttl); /* in rising order of ids as unsigned numbers */
  /* Finds the first row whose name is above *name; *name becomes the name of that row. */
  int (*next_row)(void *ctx, kw_slice *name, kw_slice *bytes);
  bool (*must_end)(void *ctx); /* not NULL; returns true if the image is no longer wanted */
  void *ctx;
  kw_commit_meta meta;
} kw_image_source;

/* Writes an image to an empty file, which is open for reading, too. Sets *size to the size of the bbolt file in bytes,
 * without the SHA-256. Errors: KW_ERR_NO_SPACE, KW_ERR_STORAGE, KW_ERR_NO_MEMORY; KW_ERR_CANCELLED if `must_end`
 * returned true; or an error of the source. Does not sync. */
int kw_image_write(int fd, const kw_image_source *source, int64_t *size);

/* }====== */

/* {====== Reading ======
 *
 * kw_image_next_record, kw_image_next_lease and kw_image_next_row are called in this order, each until it returns 0.
 * They return 1, 0 at the end, KW_ERR_CORRUPT or KW_ERR_NO_MEMORY. Slices point into the image, and are valid until the
 * next call.
 */

typedef struct kw_image kw_image;

/* Opens an image that keywatch or an etcd from 3.4 to 3.6 has made, and checks its SHA-256. With `skip_hash` the
 * SHA-256 is not checked, and may be missing: etcd's own database file has none. Errors: KW_ERR_NO_MEMORY;
 * KW_ERR_CORRUPT and KW_ERR_STORAGE, both with a sentence in `text`. */
int kw_image_open(const char *path, bool skip_hash, kw_image **image, char text[KW_REASON_ROOM]);

/* Closes the image and frees it. */
void kw_image_close(kw_image *image);

/* Reads the next record, in rising order of revisions. The kv of a tombstone has only a key. */
int kw_image_next_record(kw_image *image, kw_revision *rev, bool *tombstone, kw_kv *kv);

/* Reads the next lease. `ttl` is in seconds. */
int kw_image_next_lease(kw_image *image, int64_t *id, int64_t *ttl);

/* Reads the next row. `table` is static text. */
int kw_image_next_row(kw_image *image, kw_slice *table, kw_slice *key, kw_slice *bytes);

/* Returns the compact_revision and compacted_until of the image, and its revision, which is known only after all
 * records were read. The other numbers are 0. */
kw_commit_meta kw_image_meta(const kw_image *image);

/* Returns the size of the bbolt file in bytes. */
int64_t kw_image_size(const kw_image *image);

/* }====== */

/* Sets `text` to "keywatch: <path>: <why>". Returns `rc`. */
int kw_image_refuse(char text[KW_REASON_ROOM], const char *path, int rc, const char *why);

#endif
