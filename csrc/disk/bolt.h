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
 *            number of pages (8)  transaction (8)  FNV-1a of all that (8)
 *
 * The numbers in parentheses are bytes; all numbers are little-endian.
 */
#ifndef KW_DISK_BOLT_H
#define KW_DISK_BOLT_H

#include "base/slice.h"

#define KW_BOLT_PAGE 4096  /* bytes of a page that is written */
#define KW_BOLT_BUCKETS 64 /* largest number of buckets, written or read */
#define KW_BOLT_DEPTH 32   /* largest depth of a tree that is read */
#define KW_BOLT_RUN                                                                                \
  (1 << 29) /* largest page with its overflow that is read, in bytes: far above any value of etcd */

/* {====== Writing ======
 *
 * Keys come in order, so that each tree is written from the left to the right, and only its right edge is in memory:
 * a page for each level. Every branch has two elements at least, as bbolt requires; a branch is larger than a page if
 * two keys are.
 */

typedef struct kw_bolt_writer kw_bolt_writer;

/* Returns a writer that writes from the beginning of an empty file, or NULL if memory is short. The descriptor stays
 * the caller's. */
kw_bolt_writer *kw_bolt_writer_new(int fd);

/* Frees the writer, finished or not. Leaves the file as it is. */
void kw_bolt_writer_free(kw_bolt_writer *writer);

/* The next three functions return KW_OK, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE. After an error the
 * writer writes nothing more, and each of them returns the same error. */

/* Begins a bucket, and ends the one before. Buckets come in the order of their names. A name is borrowed until
 * kw_bolt_finish. */
int kw_bolt_begin(kw_bolt_writer *writer, kw_slice name);

/* Adds a key of any length to the bucket that was begun last. Keys come in bytewise order, each once. Key and value
 * are copied. */
int kw_bolt_put(kw_bolt_writer *writer, kw_slice key, kw_slice value);

/* Writes the rest of the file. *size becomes the size of the file in bytes. Does not sync. */
int kw_bolt_finish(kw_bolt_writer *writer, int64_t *size);

/* }====== */

/* {====== Reading ======
 *
 * The reader trusts nothing in the file. A walk visits no page twice, so that it ends in any file. A page is read
 * when the walk comes to it; a page for each level is in memory.
 */

typedef struct kw_bolt_reader kw_bolt_reader;

/* Opens the database in the first `size` bytes of a file. The descriptor stays the caller's, and is in use until
 * kw_bolt_close. Errors: KW_ERR_CORRUPT, also where the file cannot be read; KW_ERR_NO_MEMORY. */
int kw_bolt_open(int fd, int64_t size, kw_bolt_reader **reader);

/* Frees the reader. */
void kw_bolt_close(kw_bolt_reader *reader);

/* True if there is a bucket of this name. */
bool kw_bolt_has(const kw_bolt_reader *reader, kw_slice name);

/* Goes to the first key of a bucket. A bucket that does not exist is as an empty one. Errors: KW_ERR_CORRUPT,
 * KW_ERR_NO_MEMORY. */
int kw_bolt_seek(kw_bolt_reader *reader, kw_slice name);

/* Reads the next key of the bucket and its value. Returns 1, 0 at the end, KW_ERR_CORRUPT or KW_ERR_NO_MEMORY. The
 * slices are valid until the next call. Nested buckets are skipped. The order of the keys is not checked. */
int kw_bolt_next(kw_bolt_reader *reader, kw_slice *key, kw_slice *value);

/* }====== */

#endif
