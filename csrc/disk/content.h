/* SPDX-License-Identifier: MIT
 *
 * content: a file with the last known content of a cache. This file has the format and the reader; the writer, which
 * reads the records of a store, is in store/content_writer.h.
 *
 *   offset  bytes
 *   0       7      "kwcache"
 *   7       1      version of the format: 1
 *   8       8      bytes of the whole file
 *   16      8      id of the cluster that the content comes from
 *   24      8      revision of the content
 *   32      8      when the server last confirmed the content, in seconds since 1970; at most 2^53
 *   40      8      number of kvs
 *   48      4      bytes of the key of the range
 *   52      4      bytes of the end of the range
 *   56             key and end of the range; then the kvs in the order of keys: 4 bytes of length, and the KeyValue
 *   the end 4      CRC-32C of all bytes before
 *
 * Numbers are big-endian. The reader trusts no length and no number of the file, even if the checksum is right.
 */
#ifndef KW_DISK_CONTENT_H
#define KW_DISK_CONTENT_H

#include "disk/database.h"
#include "model/kv.h"
#include "model/range.h"

#define KW_CONTENT_HEADER 56
#define KW_CONTENT_LENGTH 4                     /* bytes of the length of a kv */
#define KW_CONTENT_CHECKSUM 4                   /* bytes */
#define KW_CONTENT_MAX_BYTES (INT64_C(1) << 30) /* larger files are neither written nor read */

/* The numbers in the header of a file. */
typedef struct kw_content_meta {
  uint64_t cluster;
  int64_t revision;
  int64_t confirmed_at; /* when the server last confirmed the content, in seconds since 1970 */
} kw_content_meta;

/* The content of a file. All zero: no content. */
typedef struct kw_content {
  kw_content_meta meta;
  kw_kv *kvs; /* in the order of keys; their slices point into `bytes` */
  size_t n;
  size_t cap;
  uint8_t *bytes; /* of the whole file */
  size_t size;
} kw_content;

/* Reads the file `path`, which must have the content of exactly this range. Blocks the thread. Returns KW_OK, and then
 * the caller drops *content; KW_ERR_NOT_FOUND if there is no such file; KW_ERR_CORRUPT if the file is not usable: it is
 * damaged, too large, or of another range or format; KW_ERR_STORAGE if it cannot be read; or KW_ERR_NO_MEMORY. After an
 * error *content is all zero, and `text` says what is wrong: a predicate without its subject, the file. */
int kw_content_read(const char *path, const kw_range *range, kw_content *content,
                    char text[KW_REASON_ROOM]);

/* Frees everything. *content is then all zero. */
void kw_content_drop(kw_content *content);

/* Writes the header of a file of `size` bytes with `n` kvs to `to`, a buffer of KW_CONTENT_HEADER bytes. Key and end of
 * the range are shorter than 4 GiB. */
void kw_content_put_header(uint8_t *to, const kw_content_meta *meta, const kw_range *range,
                           uint64_t size, uint64_t n);

#endif
