/* SPDX-License-Identifier: MIT
 *
 * bolt: bbolt's file, in which etcd keeps everything. Here it is buckets, and in each of them keys with values, in
 * order; what they mean is store/image.h's.
 *
 *   file     page 0, page 1: meta   page 2: the free pages   page 3 and on: trees
 *   page     id (8)  flags (2)  count (2)  overflow (4): so many pages more  |  elements  |  bytes
 *   leaf     flags (4)  pos (4)  key's length (4)  value's length (4)        pos: of the key, from the element on
 *   branch   pos (4)  key's length (4)  page (8)                             the key is the first one of that page
 *   bucket   a leaf element of the root's tree, whose value is: root page (8)  sequence (8)
 *            without root page, a page of its own follows in the value
 *   meta     magic (4)  version (4)  page's size (4)  flags (4)  the root's bucket (16)  page of the free pages (8)
 *            how many pages there are (8)  transaction (8)  FNV-1a of all that (8)
 *
 * All numbers are little-endian. The writer takes keys of any length, in order, and holds a few pages of them. Its
 * branches have two elements at least, since bbolt relies on that: a branch is larger than a page if two keys are. The
 * reader trusts nothing in the file.
 */
#ifndef KW_STORE_BOLT_H
#define KW_STORE_BOLT_H

#include "base/slice.h"

#define KW_BOLT_PAGE 4096     /* bytes of a page that we write */
#define KW_BOLT_BUCKETS 64    /* so many, at most */
#define KW_BOLT_DEPTH 32      /* of a tree that is read */
#define KW_BOLT_RUN (1 << 29) /* bytes of a page that is read: far above any value of etcd */

/* {====== Writing ====== */

typedef struct kw_bolt_writer kw_bolt_writer;

/* Writes from the beginning of a file, which is empty. NULL if memory is short. */
kw_bolt_writer *kw_bolt_writer_new(int fd);
void kw_bolt_writer_free(kw_bolt_writer *writer);

/* Begins a bucket. Buckets come in the order of their names, which stay where they are until kw_bolt_finish. After an
 * error, KW_ERR_NO_SPACE, KW_ERR_NO_MEMORY or KW_ERR_STORAGE, nothing is written any more, and kw_bolt_finish says so
 * again. */
int kw_bolt_begin(kw_bolt_writer *writer, kw_slice name);

/* Adds a key, of any length, to the bucket. Keys come in their order. The same errors. */
int kw_bolt_put(kw_bolt_writer *writer, kw_slice key, kw_slice value);

/* Ends the file; *size is what it has. */
int kw_bolt_finish(kw_bolt_writer *writer, int64_t *size);

/* }====== */

/* {====== Reading ====== */

typedef struct kw_bolt_reader kw_bolt_reader;

/* Reads the first `size` bytes of a file. KW_ERR_CORRUPT, KW_ERR_NO_MEMORY. */
int kw_bolt_open(int fd, int64_t size, kw_bolt_reader **reader);
void kw_bolt_close(kw_bolt_reader *reader);

/* Goes to the beginning of a bucket; one that is not there is empty. */
int kw_bolt_seek(kw_bolt_reader *reader, kw_slice name);

/* Whether there is such a bucket. */
bool kw_bolt_has(const kw_bolt_reader *reader, kw_slice name);

/* The next key of the bucket and its value, good until the next call: 1, or 0 at the end. KW_ERR_CORRUPT,
 * KW_ERR_NO_MEMORY. Buckets inside of it are left out. */
int kw_bolt_next(kw_bolt_reader *reader, kw_slice *key, kw_slice *value);

/* }====== */

#endif
