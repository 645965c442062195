/* SPDX-License-Identifier: MIT
 *
 * bolt: writes and reads the file format of bbolt, the database of etcd. A file holds buckets, and each bucket holds
 * keys with values, in order. disk/image.h says what they mean.
 *
 *   file     page 0, page 1: meta   page 2: the free pages   page 3 and on: B+ trees
 *   page     id (8)  flags (2)  count (2)  overflow (4): the number of pages that follow and belong to it
 *            then the elements, then the bytes of keys and values
 *   leaf     flags (4)  pos (4)  key length (4)  value length (4)       pos: from the element to its key
 *   branch   pos (4)  key length (4)  page (8)                          the key is the first one of that page
 *   bucket   a leaf element of the root tree; its value is: root page (8)  sequence (8)
 *            if the root page is 0, the value continues with the bucket's only page
 *   meta     magic (4)  version (4)  page size (4)  flags (4)  the root bucket (16)  page of the free pages (8)
 *            number of pages (8)  transaction (8)  FNV-1a of all the above (8)
 *
 * The numbers in parentheses are bytes; all numbers are little-endian.
 */
#ifndef KW_DISK_BOLT_H
#define KW_DISK_BOLT_H

#include "base/slice.h"

#define KW_BOLT_PAGE 4096  /* bytes of a page that is written */
#define KW_BOLT_BUCKETS 64 /* largest number of buckets, written or read */
#define KW_BOLT_DEPTH 32   /* largest depth of a tree that is read */
/* Most bytes of a page with its overflow that is read: far above any value of etcd. */
#define KW_BOLT_RUN (1 << 29)

/* {====== Writing ======
 *
 * Keys are added in order, so each tree is written from left to right, and only its right edge is in memory: one page
 * per level. Every branch has at least two elements, as bbolt requires; a branch is larger than a page if its two keys
 * are.
 *
 * kw_bolt_begin, kw_bolt_put and kw_bolt_finish return KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE.
 * After an error the writer writes nothing more, and each of them returns the same error.
 */

typedef struct kw_bolt_writer kw_bolt_writer;

/* Returns a writer that writes from the beginning of an empty file, or NULL if memory is short. The descriptor remains
 * the caller's. */
kw_bolt_writer *kw_bolt_writer_new(int fd);

/* Frees the writer, finished or not. Leaves the file as it is. */
void kw_bolt_writer_free(kw_bolt_writer *writer);

/* Begins a bucket, and ends the previous one. Buckets are added in the order of their names. A name is borrowed until
 * kw_bolt_finish. */
int kw_bolt_begin(kw_bolt_writer *writer, kw_slice name);

/* Adds a key of any length to the current bucket. Keys are added in bytewise order, each once. Key and value are
 * copied. */
int kw_bolt_put(kw_bolt_writer *writer, kw_slice key, kw_slice value);

/* Writes the rest of the file, and sets *size to the size of the file in bytes. Does not sync. */
int kw_bolt_finish(kw_bolt_writer *writer, int64_t *size);

/* }====== */

/* {====== Reading ======
 *
 * The reader trusts nothing in the file. A walk visits no page twice, so it ends whatever the file contains. A page is
 * read when the walk reaches it; one page per level is in memory.
 */

typedef struct kw_bolt_reader kw_bolt_reader;

/* Opens the database in the first `size` bytes of a file. The descriptor remains the caller's, and is used until
 * kw_bolt_close. Errors: KW_ERR_CORRUPT, also if the file cannot be read; KW_ERR_NO_MEMORY. */
int kw_bolt_open(int fd, int64_t size, kw_bolt_reader **reader);

/* Frees the reader. */
void kw_bolt_close(kw_bolt_reader *reader);

/* True if there is a bucket of this name. */
bool kw_bolt_has(const kw_bolt_reader *reader, kw_slice name);

/* Moves to the first key of a bucket. A bucket that does not exist counts as empty. Errors: KW_ERR_CORRUPT,
 * KW_ERR_NO_MEMORY. */
int kw_bolt_seek(kw_bolt_reader *reader, kw_slice name);

/* Reads the next key of the bucket and its value. Returns 1, 0 at the end, KW_ERR_CORRUPT or KW_ERR_NO_MEMORY. The
 * slices are valid until the next call. Nested buckets are skipped. The order of the keys is not checked. */
int kw_bolt_next(kw_bolt_reader *reader, kw_slice *key, kw_slice *value);

/* }====== */

#endif
