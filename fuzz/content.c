/* SPDX-License-Identifier: MIT
 *
 * content: reads the file of a cache that is made from the input, loads a replica with the content, writes that, and
 * reads it again.
 *
 *   how    one byte: 0 if the rest is the file as it is; else the rest is what follows the end of the range, and the
 *          byte is the number of kvs and 1. Size, checksum and range, which a fuzzer cannot guess, are then correct
 *   rest
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/big_endian.h"
#include "base/crc32c.h"
#include "bytes.h"
#include "model/error.h"
#include "probe/checks.h"
#include "reach.h"
#include "store/content_writer.h"
#include "store/replica.h"

#define REVISION 100

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REFUSED, READ, KVS };
static reach reached[] = {{"refused", 0}, {"read", 0}, {"kvs", 0}, {0}};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  reach_report(reached);
  return 0;
}

static kw_range range(void) {
  return (kw_range){.key = kw_slice_text("a"), .end = kw_slice_text("b")};
}

/* Adds a file whose frame is correct. */
static void add_framed(bytes *file, uint8_t n, kw_slice rest) {
  kw_range keys = range();
  size_t size = KW_CONTENT_HEADER + keys.key.len + keys.end.len + rest.len + KW_CONTENT_CHECKSUM;
  kw_content_meta meta = {.cluster = 1, .revision = REVISION, .confirmed_at = 1};
  kw_content_put_header(bytes_grow(file, KW_CONTENT_HEADER), &meta, &keys, size, n);
  bytes_add(file, keys.key);
  bytes_add(file, keys.end);
  bytes_add(file, rest);
  bytes_add_number(file, kw_crc32c(0, bytes_slice(file)), KW_CONTENT_CHECKSUM);
}

static void check_kvs(const kw_content *content) {
  kw_range keys = range();
  for (size_t i = 0; i < content->n; i++) {
    const kw_kv *kv = &content->kvs[i];
    must(kw_kv_is_sound(kv, &keys, content->meta.revision), "a kv is one that a server can have");
    must(i == 0 || kw_slice_compare(kv[-1].key, kv->key) < 0, "keys are in order");
    free(bytes_exact(kv->value)); /* reads every byte */
  }
}

static kw_store *open_replica(const kw_content *content) {
  kw_store_options options = kw_store_defaults();
  char why[KW_REASON_ROOM];
  kw_store *store;
  options.replica = true;
  must(kw_store_open(&options, 0, &store, why) == KW_OK, "there is memory");
  must(kw_replica_use(store, KW_REPLICA_LOAD, content->meta.revision, content->kvs, content->n) ==
           KW_OK,
       "content is loaded");
  must_be_sound(kw_store_check(store));
  return store;
}

/* Writes the content of a replica where no other process looks, and reads it again. */
static void write_again(const kw_content *content, kw_store *replica) {
  char path[64], text[KW_REASON_ROOM];
  kw_range keys = range();
  kw_content again;
  snprintf(path, sizeof path, "/dev/shm/keywatch-fuzz-%ld", (long)getpid());
  kw_content_writer *writer = kw_content_writer_new(path);
  must(kw_content_writer_begin(writer, replica, &keys, content->meta) == KW_OK, "there is memory");
  int rc;
  while ((rc = kw_content_writer_hold(writer, replica, 1)) == 0) continue;
  must(rc > 0, "all keys are held");
  kw_content_writer_wait(writer);
  must(kw_content_writer_outcome(writer) == 0, "a file is written");
  kw_content_writer_free(writer);
  must(kw_content_read(path, &keys, &again, text) == KW_OK, "what was written is read");
  unlink(path);
  must(again.n == content->n && again.meta.revision == content->meta.revision, "nothing is lost");
  for (size_t i = 0; i < again.n; i++) {
    const kw_kv *a = &again.kvs[i], *b = &content->kvs[i];
    must(kw_slice_equal(a->key, b->key) && kw_slice_equal(a->value, b->value),
         "nothing is changed");
  }
  kw_content_drop(&again);
}

static void use(const kw_content *content) {
  check_kvs(content);
  kw_store *replica = open_replica(content);
  if (reached[READ].n % 16 == 0) write_again(content, replica);
  kw_store_free(replica);
  reached[READ].n++;
  reached[KVS].n += content->n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[32], text[KW_REASON_ROOM];
  kw_range keys = range();
  kw_content content;
  bytes file = {0};
  if (size < 1) return 0;
  kw_slice rest = kw_slice_of(data + 1, size - 1);
  if (data[0] == 0) {
    bytes_add(&file, rest);
  } else {
    add_framed(&file, data[0] - 1, rest);
  }
  int fd = memfd_create("content", 0);
  must(write(fd, file.data, file.len) == (ssize_t)file.len, "the file is written");
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (kw_content_read(path, &keys, &content, text) == KW_OK) {
    use(&content);
    kw_content_drop(&content);
  } else {
    must(content.bytes == NULL && content.kvs == NULL && text[0] != 0, "a refusal has a reason");
    reached[REFUSED].n++;
  }
  close(fd);
  bytes_drop(&file);
  return 0;
}
