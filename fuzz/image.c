/* SPDX-License-Identifier: MIT
 *
 * image: reads a bbolt file, and the image in it, that is made from the input. A few bytes of input make a page, so
 * that a short input has many pages. Checksums and page ids, which a fuzzer cannot guess, are correct.
 *
 *   root   one byte: the root page of the tree of buckets
 *   page   56 bytes for each page: what follows its id; the rest of the page is zero
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bytes.h"
#include "disk/bolt.h"
#include "disk/image.h"
#include "model/error.h"

#define PAGE 512
#define FIRST 2  /* page after the metas */
#define GIVEN 56 /* bytes of a page that come from the input */
#define HEADER 16
#define SUMMED 56
#define MOST_PAGES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(uint8_t *to, uint64_t v, int n) {
  for (int i = 0; i < n; i++) to[i] = (uint8_t)(v >> 8 * i);
}

static void put_meta(uint8_t *page, uint64_t root, uint64_t pages) {
  uint8_t *meta = page + HEADER;
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  put(meta, 0xED0CDAED, 4);
  put(meta + 4, 2, 4);
  put(meta + 8, PAGE, 4);
  put(meta + 16, root, 8);
  put(meta + 40, pages, 8);
  for (int i = 0; i < SUMMED; i++) sum = (sum ^ meta[i]) * UINT64_C(0x100000001b3);
  put(meta + SUMMED, sum, 8);
}

/* Reads every byte of a slice, so that sanitizers see one that is outside of its memory. */
static void touch(kw_slice bytes) {
  uint8_t *copy = bytes_exact(bytes);
  free(copy);
}

static void walk_buckets(int fd, int64_t size) {
  static const char *const names[] = {"key", "lease", "meta", "k"};
  kw_bolt_reader *reader;
  kw_slice key, value;
  if (kw_bolt_open(fd, size, &reader) != KW_OK) return;
  for (size_t i = 0; i < KW_LENGTH(names); i++) {
    int rc = kw_bolt_seek(reader, kw_slice_of(names[i], strlen(names[i])));
    for (size_t n = 0; rc == KW_OK && (rc = kw_bolt_next(reader, &key, &value)) > 0; n++) {
      must(n < MOST_PAGES * PAGE, "a file has an end");
      touch(key);
      touch(value);
      rc = KW_OK;
    }
  }
  kw_bolt_close(reader);
}

static void walk_image(int fd) {
  char path[32], text[KW_REASON_ROOM];
  kw_image *image;
  kw_revision rev, last = {0};
  bool tombstone;
  kw_kv kv;
  int64_t id, ttl;
  int rc;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (kw_image_open(path, true, &image, text) != KW_OK) return;
  while ((rc = kw_image_next_record(image, &rev, &tombstone, &kv)) > 0) {
    must(kw_revision_compare(last, rev) < 0, "revisions rise");
    last = rev;
    touch(kv.key);
    touch(kv.value);
  }
  while (rc == 0 && (rc = kw_image_next_lease(image, &id, &ttl)) > 0) {
    must(id != 0 && ttl > 0, "a lease is one");
    rc = 0;
  }
  kw_image_close(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t file[MOST_PAGES * PAGE];
  if (size < 2) return 0;
  uint64_t root = *data++;
  size_t pages = kw_min_size(FIRST + (size - 1 + GIVEN - 1) / GIVEN, MOST_PAGES);
  memset(file, 0, sizeof file);
  for (uint64_t i = 0; i < FIRST; i++) put_meta(file + i * PAGE, root, pages);
  for (size_t i = FIRST, at = 0; i < pages; i++, at += GIVEN) {
    put(file + i * PAGE, i, 8);
    memcpy(file + i * PAGE + 8, data + at, kw_min_size(GIVEN, size - 1 - at));
  }
  int fd = memfd_create("image", 0);
  must(write(fd, file, pages * PAGE) == (ssize_t)(pages * PAGE), "the file is written");
  walk_buckets(fd, (int64_t)(pages * PAGE));
  walk_image(fd);
  close(fd);
  return 0;
}
