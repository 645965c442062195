/* SPDX-License-Identifier: MIT
 *
 * image: a store as etcd's snapshots have it: a bbolt file, and behind it the SHA-256 of that, 32 bytes.
 *
 *   key     revision as main (8), "_", sub (8), big-endian, and "t" for a tombstone   ->  the encoded KeyValue
 *   lease   id, big-endian                                                            ->  leasepb.Lease
 *   meta    "scheduledCompactRev", "finishedCompactRev" -> revision, as above; "consistent_index" -> 8 bytes
 *
 *   auth, authRoles, authUsers   what is kept in the tables of these names, see store/rows.h
 *
 * The other buckets that etcd has are written empty, and not read: they are about members and alarms, which belong to a
 * server and not to its data.
 */
#ifndef KW_STORE_IMAGE_H
#define KW_STORE_IMAGE_H

#include "model/kv.h"
#include "store/database.h"
#include "store/rows.h"

/* What an image is made of. The functions return 1, 0 at the end, or an error. */
typedef struct kw_image_source {
  int (*next_record)(void *ctx, kw_disk_entry *entry);     /* revisions rise */
  int (*next_lease)(void *ctx, int64_t *id, int64_t *ttl); /* ids rise, as numbers without sign */
  bool (*must_end)(void *ctx);                             /* nobody wants it any more */
  void *ctx;
  kw_disk_meta meta;
  const kw_rows *rows;
} kw_image_source;

/* Writes an image to an empty file; *size is that of its bbolt file. KW_ERR_NO_SPACE, KW_ERR_STORAGE, KW_ERR_NO_MEMORY,
 * KW_ERR_CANCELLED, or what the source has failed with. */
int kw_image_write(int fd, const kw_image_source *source, int64_t *size);

typedef struct kw_image kw_image;

/* Opens an image: one of ours, or of an etcd from 3.4 to 3.6. Its sum is checked, unless `skip_hash`: then it may be
 * etcd's bare file, too. KW_ERR_NO_MEMORY; KW_ERR_CORRUPT, KW_ERR_STORAGE, with a sentence in `text`. */
int kw_image_open(const char *path, bool skip_hash, kw_image **image, char text[KW_DISK_TEXT]);
void kw_image_close(kw_image *image);

/* Everything that the image has, in order, first all records, then all leases, then what is kept: 1, 0 at the end,
 * KW_ERR_CORRUPT, KW_ERR_NO_MEMORY. Slices are good until the next call. */
int kw_image_next_record(kw_image *image, kw_revision *rev, bool *tombstone, kw_kv *kv);
int kw_image_next_lease(kw_image *image, int64_t *id, int64_t *ttl);
int kw_image_next_row(kw_image *image, kw_slice *table, kw_slice *key, kw_slice *bytes);

/* What it says beside: compaction; and, once all records were read, the revision. */
kw_disk_meta kw_image_meta(const kw_image *image);

/* Bytes of the file. */
int64_t kw_image_size(const kw_image *image);

#endif
