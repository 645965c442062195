/* SPDX-License-Identifier: MIT */
#include "disk/bolt.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/error.h"

#define PAGE KW_BOLT_PAGE
#define MAGIC UINT32_C(0xED0CDAED)
#define VERSION 2
#define HEADER 16 /* bytes of the head of a page */
#define ELEMENT 16
#define BUCKET 16 /* bytes of the value of a bucket, without a page */
#define META 64   /* bytes of a meta, with its checksum */
#define SUMMED 56 /* bytes of a meta that the checksum covers */
#define FREE_PAGES 2
#define FIRST_PAGE 3
#define BUFFER (64 * PAGE)
#define MOST_ELEMENTS ((PAGE - HEADER) / ELEMENT) /* of a page, if all are empty */
#define LEVELS 32 /* of branches: enough, even with two children each */

enum { BRANCH_FLAG = 0x01, LEAF_FLAG = 0x02, META_FLAG = 0x04, FREE_FLAG = 0x10 };
enum { BUCKET_FLAG = 1 };

/* {====== Numbers ====== */

static void put_little(uint8_t *to, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_little(const uint8_t *from, int bytes) {
  uint64_t v = 0;
  for (int i = bytes - 1; i >= 0; i--) v = v << 8 | from[i];
  return v;
}

static uint64_t checksum(const uint8_t *meta) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (int i = 0; i < SUMMED; i++) h = (h ^ meta[i]) * UINT64_C(0x100000001b3);
  return h;
}

/* }====== */

/* {====== Writing ====== */

/* An element of a page that is being filled. */
typedef struct entry {
  uint64_t page; /* the child, in a branch */
  uint32_t key_len;
  uint32_t value_len; /* in a leaf, else 0 */
  uint32_t flags;
} entry;

/* The page of one level of the tree that is being filled: its elements, and the bytes that follow them. The bytes of a
 * leaf are the keys, each with its value, and always fit into a page. The bytes of a branch are the keys, and may
 * exceed a page. A branch holds up to two entries more than fit, so that the last branch of a level has two, too. */
typedef struct level {
  entry entries[MOST_ELEMENTS + 2];
  size_t n;
  uint8_t *bytes;
  size_t len;
  size_t cap;
  bool has_pages; /* pages of this level were written */
} level;

typedef struct named_root {
  kw_slice name;
  uint64_t page;
} named_root;

struct kw_bolt_writer {
  int fd;
  int rc;
  uint64_t next_page;
  level leaf;
  level branches[LEVELS];

  bool is_open; /* the last bucket is being filled */
  named_root buckets[KW_BOLT_BUCKETS];
  size_t n_buckets;

  uint8_t buffer[BUFFER];
  size_t held;     /* bytes in the buffer */
  int64_t written; /* bytes in the file */
};

static void write_at(kw_bolt_writer *w, const uint8_t *bytes, size_t len, int64_t at) {
  if (w->rc != KW_OK) return;
  int number = kw_file_write(w->fd, bytes, len, at);
  if (number != 0) w->rc = kw_error_of_errno(number);
}

static void flush(kw_bolt_writer *w) {
  write_at(w, w->buffer, w->held, w->written);
  w->written += (int64_t)w->held;
  w->held = 0;
}

static void emit(kw_bolt_writer *w, kw_slice bytes) {
  while (bytes.len > 0) {
    size_t n = kw_min_size(bytes.len, BUFFER - w->held);
    memcpy(w->buffer + w->held, bytes.data, n);
    w->held += n;
    if (w->held == BUFFER) flush(w);
    bytes = kw_slice_of(bytes.data + n, bytes.len - n);
  }
}

/* Fills the rest of the page with zeros. The buffer begins at a page boundary, and its size is a multiple of the page
 * size. */
static void emit_rest(kw_bolt_writer *w) {
  size_t rest = (PAGE - w->held % PAGE) % PAGE;
  memset(w->buffer + w->held, 0, rest);
  w->held += rest;
  if (w->held == BUFFER) flush(w);
}

static void put_header(uint8_t *to, uint64_t id, unsigned flags, size_t count, size_t overflow) {
  put_little(to, id, 8);
  put_little(to + 8, flags, 2);
  put_little(to + 10, count, 2);
  put_little(to + 12, overflow, 4);
}

/* Begins a page of this size. Returns its id. */
static uint64_t begin_page(kw_bolt_writer *w, unsigned flags, size_t count, size_t bytes) {
  uint8_t header[HEADER];
  size_t pages = (bytes + PAGE - 1) / PAGE;
  uint64_t id = w->next_page;
  w->next_page += pages;
  put_header(header, id, flags, count, pages - 1);
  emit(w, kw_slice_of(header, HEADER));
  return id;
}

static void emit_leaf_element(kw_bolt_writer *w, const entry *e, size_t pos) {
  uint8_t element[ELEMENT];
  put_little(element, e->flags, 4);
  put_little(element + 4, pos, 4);
  put_little(element + 8, e->key_len, 4);
  put_little(element + 12, e->value_len, 4);
  emit(w, kw_slice_of(element, ELEMENT));
}

static void emit_branch_element(kw_bolt_writer *w, const entry *e, size_t pos) {
  uint8_t element[ELEMENT];
  put_little(element, pos, 4);
  put_little(element + 4, e->key_len, 4);
  put_little(element + 8, e->page, 8);
  emit(w, kw_slice_of(element, ELEMENT));
}

/* Adds an element to the page of a level, with its bytes after those of the other elements. */
static void add_entry(kw_bolt_writer *w, level *to, entry e, kw_slice key, kw_slice value) {
  if (!kw_reserve(&to->bytes, &to->cap, to->len + key.len + value.len, 1)) {
    w->rc = KW_ERR_NO_MEMORY;
    return;
  }
  e.key_len = (uint32_t)key.len;
  e.value_len = (uint32_t)value.len;
  to->entries[to->n++] = e;
  if (key.len > 0) memcpy(to->bytes + to->len, key.data, key.len);
  to->len += key.len;
  if (value.len > 0) memcpy(to->bytes + to->len, value.data, value.len);
  to->len += value.len;
}

/* Removes the first `n` elements, and their `len` bytes. */
static void remove_first(level *from, size_t n, size_t len) {
  from->n -= n;
  from->len -= len;
  memmove(from->entries, from->entries + n, from->n * sizeof from->entries[0]);
  if (from->len > 0) memmove(from->bytes, from->bytes + len, from->len);
}

/* Returns the first key of the page of a level; an empty key if the page has none. */
static kw_slice first_key(const level *of) {
  return kw_slice_of(of->bytes, of->n == 0 ? 0 : of->entries[0].key_len);
}

static void add_child(kw_bolt_writer *w, size_t depth, kw_slice key, uint64_t page);

/* Writes the first `n` entries of a branch as a page, and adds the page to the branch above. */
static void write_branch(kw_bolt_writer *w, size_t depth, size_t n) {
  level *branch = &w->branches[depth];
  size_t len = 0, pos = n * ELEMENT;
  for (size_t i = 0; i < n; i++) len += branch->entries[i].key_len;
  uint64_t id = begin_page(w, BRANCH_FLAG, n, HEADER + n * ELEMENT + len);
  for (size_t i = 0; i < n; i++) {
    emit_branch_element(w, &branch->entries[i], pos);
    pos += branch->entries[i].key_len - (size_t)ELEMENT;
  }
  emit(w, kw_slice_of(branch->bytes, len));
  emit_rest(w);
  branch->has_pages = true;
  add_child(w, depth + 1, first_key(branch), id);
  remove_first(branch, n, len);
}

/* Returns how many of the first entries fit into a page; at least two, even if these do not fit. */
static size_t fitting(const level *branch) {
  size_t bytes = HEADER, n = 0;
  while (n < branch->n && (n < 2 || bytes + ELEMENT + branch->entries[n].key_len <= PAGE))
    bytes += ELEMENT + branch->entries[n++].key_len;
  return n;
}

/* Adds a page to the branch above it. `key` is the first key of the page. A full branch is written, unless fewer than
 * two entries would remain. */
static void add_child(kw_bolt_writer *w, size_t depth, kw_slice key, uint64_t page) {
  if (depth == LEVELS) w->rc = KW_ERR_STORAGE;
  if (w->rc != KW_OK) return;
  level *branch = &w->branches[depth];
  add_entry(w, branch, (entry){.page = page}, key, (kw_slice){0});
  if (HEADER + branch->n * ELEMENT + branch->len <= PAGE) return;
  size_t n = fitting(branch);
  if (branch->n - n >= 2) write_branch(w, depth, n);
}

static void write_leaf(kw_bolt_writer *w) {
  level *leaf = &w->leaf;
  size_t pos = leaf->n * ELEMENT;
  uint64_t id = begin_page(w, LEAF_FLAG, leaf->n, HEADER + pos + leaf->len);
  for (size_t i = 0; i < leaf->n; i++) {
    const entry *e = &leaf->entries[i];
    emit_leaf_element(w, e, pos);
    pos += e->key_len + e->value_len - (size_t)ELEMENT;
  }
  emit(w, kw_slice_of(leaf->bytes, leaf->len));
  emit_rest(w);
  add_child(w, 0, first_key(leaf), id);
  leaf->n = leaf->len = 0;
}

/* Writes a key and a value that together are larger than a page as a leaf of their own. */
static void write_alone(kw_bolt_writer *w, entry e, kw_slice key, kw_slice value) {
  e.key_len = (uint32_t)key.len;
  e.value_len = (uint32_t)value.len;
  uint64_t id = begin_page(w, LEAF_FLAG, 1, HEADER + ELEMENT + key.len + value.len);
  emit_leaf_element(w, &e, ELEMENT);
  emit(w, key);
  emit(w, value);
  emit_rest(w);
  add_child(w, 0, key, id);
}

static void put(kw_bolt_writer *w, uint32_t flags, kw_slice key, kw_slice value) {
  level *leaf = &w->leaf;
  entry e = {.flags = flags};
  size_t bytes = ELEMENT + key.len + value.len;
  if (leaf->n > 0 && HEADER + leaf->n * ELEMENT + leaf->len + bytes > PAGE) write_leaf(w);
  if (HEADER + bytes > PAGE) {
    write_alone(w, e, key, value);
  } else {
    add_entry(w, leaf, e, key, value);
  }
}

/* Writes the pages that are being filled, from the leaf up to the root. Returns the id of the root page. */
static uint64_t finish_tree(kw_bolt_writer *w) {
  if (w->leaf.n > 0 || w->branches[0].n == 0) write_leaf(w);
  for (size_t depth = 0; depth < LEVELS && w->rc == KW_OK; depth++) {
    level *branch = &w->branches[depth];
    if (branch->n == 1 && !branch->has_pages) {
      uint64_t root = branch->entries[0].page;
      branch->n = branch->len = 0;
      return root;
    }
    bool has_two_pages = fitting(branch) < branch->n && branch->n >= 4;
    if (has_two_pages) write_branch(w, depth, branch->n - 2);
    write_branch(w, depth, branch->n);
    branch->has_pages = false;
  }
  return 0;
}

static void end_bucket(kw_bolt_writer *w) {
  if (w->is_open && w->rc == KW_OK) w->buckets[w->n_buckets - 1].page = finish_tree(w);
  w->is_open = false;
}

kw_bolt_writer *kw_bolt_writer_new(int fd) {
  kw_bolt_writer *w = kw_alloc_zeroed(sizeof *w);
  if (w == NULL) return NULL;
  w->fd = fd;
  w->next_page = FIRST_PAGE;
  w->held = FIRST_PAGE * PAGE; /* kw_bolt_finish writes the first pages last */
  return w;
}

void kw_bolt_writer_free(kw_bolt_writer *w) {
  for (size_t i = 0; i < LEVELS; i++) kw_free(w->branches[i].bytes);
  kw_free(w->leaf.bytes);
  kw_free(w);
}

int kw_bolt_begin(kw_bolt_writer *w, kw_slice name) {
  end_bucket(w);
  if (w->n_buckets == KW_BOLT_BUCKETS) w->rc = KW_ERR_STORAGE;
  if (w->rc != KW_OK) return w->rc;
  w->buckets[w->n_buckets++].name = name;
  w->is_open = true;
  return KW_OK;
}

int kw_bolt_put(kw_bolt_writer *w, kw_slice key, kw_slice value) {
  if (w->rc == KW_OK) put(w, 0, key, value);
  return w->rc;
}

/* Writes the tree of the buckets. Returns the id of its root page. */
static uint64_t write_buckets(kw_bolt_writer *w) {
  for (size_t i = 0; i < w->n_buckets && w->rc == KW_OK; i++) {
    uint8_t value[BUCKET] = {0};
    put_little(value, w->buckets[i].page, 8);
    put(w, BUCKET_FLAG, w->buckets[i].name, kw_slice_of(value, BUCKET));
  }
  return w->rc == KW_OK ? finish_tree(w) : 0;
}

static void put_meta(uint8_t *to, uint64_t root, uint64_t pages, uint64_t transaction) {
  put_little(to, MAGIC, 4);
  put_little(to + 4, VERSION, 4);
  put_little(to + 8, PAGE, 4);
  put_little(to + 16, root, 8);
  put_little(to + 32, FREE_PAGES, 8);
  put_little(to + 40, pages, 8);
  put_little(to + 48, transaction, 8);
  put_little(to + SUMMED, checksum(to), 8);
}

int kw_bolt_finish(kw_bolt_writer *w, int64_t *size) {
  uint8_t first[FIRST_PAGE * PAGE] = {0};
  end_bucket(w);
  uint64_t root = write_buckets(w);
  flush(w);
  for (uint64_t i = 0; i < FREE_PAGES; i++) {
    put_header(first + i * PAGE, i, META_FLAG, 0, 0);
    put_meta(first + i * PAGE + HEADER, root, w->next_page, i);
  }
  put_header(first + FREE_PAGES * PAGE, FREE_PAGES, FREE_FLAG, 0, 0);
  write_at(w, first, sizeof first, 0);
  *size = w->written;
  return w->rc;
}

/* }====== */

/* {====== Reading ====== */

/* A page on the way from the root to the current leaf. */
typedef struct frame {
  uint8_t *page; /* the frame's own memory, reused for each page */
  size_t cap;
  kw_slice bytes; /* the page: in that memory, or in the value of a bucket */
  size_t count;   /* number of elements */
  size_t at;      /* next element */
  bool is_leaf;
} frame;

typedef struct bucket {
  kw_slice name; /* owned */
  /* Owned: the page in the value of the bucket; empty: the bucket has a root page. */
  kw_slice embedded;
  uint64_t root;
} bucket;

struct kw_bolt_reader {
  int fd;
  size_t page_size;
  uint64_t pages; /* number of pages */
  uint64_t root;  /* root page of the tree of buckets */
  uint8_t *seen;  /* a bit for each page that the walk has visited */
  frame frames[KW_BOLT_DEPTH];
  size_t depth;

  bucket buckets[KW_BOLT_BUCKETS];
  size_t n_buckets;
};

/* Notes that the walk visits the pages from `first` to `last`. Returns false if one of them does not exist, or was
 * visited before: a tree has no page twice. */
static bool visit(kw_bolt_reader *r, uint64_t first, uint64_t last) {
  if (first < FREE_PAGES || last >= r->pages) return false;
  for (uint64_t id = first; id <= last; id++) {
    uint8_t bit = (uint8_t)(1u << id % 8);
    if (r->seen[id / 8] & bit) return false;
    r->seen[id / 8] |= bit;
  }
  return true;
}

/* Begins the walk of a page. Returns false if it is neither leaf nor branch, or too small for its elements. */
static bool begin_frame(frame *f, kw_slice bytes) {
  if (bytes.len < HEADER) return false;
  uint64_t flags = get_little(bytes.data + 8, 2);
  f->bytes = bytes;
  f->count = get_little(bytes.data + 10, 2);
  f->at = 0;
  f->is_leaf = flags & LEAF_FLAG;
  bool has_kind = f->is_leaf != !!(flags & BRANCH_FLAG);
  return has_kind && (f->is_leaf || f->count > 0) && HEADER + f->count * ELEMENT <= bytes.len;
}

static bool read_page(const kw_bolt_reader *r, uint8_t *to, size_t len, uint64_t id) {
  return kw_file_read(r->fd, to, len, (int64_t)(id * r->page_size));
}

static int load(kw_bolt_reader *r, frame *f, uint64_t id) {
  uint8_t header[HEADER];
  if (id >= r->pages || !read_page(r, header, HEADER, id)) return KW_ERR_CORRUPT;
  uint64_t pages = get_little(header + 12, 4) + 1;
  if (get_little(header, 8) != id || pages > r->pages - id || !visit(r, id, id + pages - 1))
    return KW_ERR_CORRUPT;
  if (pages > KW_BOLT_RUN / r->page_size) return KW_ERR_CORRUPT;
  size_t len = (size_t)pages * r->page_size;
  if (!kw_reserve(&f->page, &f->cap, len, 1)) return KW_ERR_NO_MEMORY;
  if (!read_page(r, f->page, len, id)) return KW_ERR_CORRUPT;
  return begin_frame(f, kw_slice_of(f->page, len)) ? KW_OK : KW_ERR_CORRUPT;
}

/* Begins a walk at a page of the file; or at the page embedded in a bucket, if that is not empty. */
static int begin_walk(kw_bolt_reader *r, uint64_t root, kw_slice embedded) {
  memset(r->seen, 0, r->pages / 8 + 1);
  r->depth = 1;
  int rc = KW_OK;
  if (embedded.len == 0) {
    rc = load(r, &r->frames[0], root);
  } else if (!begin_frame(&r->frames[0], embedded) || !r->frames[0].is_leaf) {
    rc = KW_ERR_CORRUPT;
  }
  if (rc != KW_OK) r->depth = 0;
  return rc;
}

/* Finds the `len` bytes that lie `pos` bytes after an element. Returns false if they are not inside of the page. */
static bool locate(const frame *f, size_t element, uint64_t pos, uint64_t len, kw_slice *bytes) {
  uint64_t from = element + pos;
  if (from > f->bytes.len || len > f->bytes.len - from) return false;
  *bytes = kw_slice_of(f->bytes.data + from, (size_t)len);
  return true;
}

static int descend(kw_bolt_reader *r, const frame *f, size_t element) {
  if (r->depth == KW_BOLT_DEPTH) return KW_ERR_CORRUPT;
  uint64_t id = get_little(f->bytes.data + element + 8, 8);
  int rc = load(r, &r->frames[r->depth], id);
  if (rc == KW_OK) r->depth++;
  return rc;
}

static int read_leaf(const frame *f, size_t element, kw_slice *key, kw_slice *value,
                     uint64_t *flags) {
  const uint8_t *at = f->bytes.data + element;
  uint64_t pos = get_little(at + 4, 4), key_len = get_little(at + 8, 4);
  *flags = get_little(at, 4);
  bool ok = locate(f, element, pos, key_len, key) &&
            locate(f, element, pos + key_len, get_little(at + 12, 4), value);
  return ok ? 1 : KW_ERR_CORRUPT;
}

static int next(kw_bolt_reader *r, kw_slice *key, kw_slice *value, uint64_t *flags) {
  while (r->depth > 0) {
    frame *f = &r->frames[r->depth - 1];
    if (f->at == f->count) {
      r->depth--;
      continue;
    }
    size_t element = HEADER + ELEMENT * f->at++;
    if (f->is_leaf) return read_leaf(f, element, key, value, flags);
    int rc = descend(r, f, element);
    if (rc != KW_OK) return rc;
  }
  return 0;
}

/* {====== Opening ====== */

typedef struct meta {
  uint64_t page_size;
  uint64_t root;
  uint64_t pages;
  uint64_t transaction;
} meta;

static bool read_meta(int fd, uint64_t at, int64_t size, meta *m) {
  uint8_t bytes[HEADER + META];
  const uint8_t *from = bytes + HEADER;
  if ((int64_t)(at + sizeof bytes) > size || !kw_file_read(fd, bytes, sizeof bytes, (int64_t)at))
    return false;
  if (get_little(from, 4) != MAGIC || get_little(from + 4, 4) != VERSION) return false;
  if (get_little(from + SUMMED, 8) != checksum(from)) return false;
  *m = (meta){.page_size = get_little(from + 8, 4),
              .root = get_little(from + 16, 8),
              .pages = get_little(from + 40, 8),
              .transaction = get_little(from + 48, 8)};
  bool is_power = (m->page_size & (m->page_size - 1)) == 0;
  return is_power && m->page_size >= 512 && m->page_size <= 1 << 20;
}

/* Finds the meta of the newer transaction. If the first meta is damaged, the page size is unknown, and the second is
 * searched for at every possible page size. */
static bool find_meta(int fd, int64_t size, meta *m) {
  meta second;
  if (read_meta(fd, 0, size, m)) {
    if (read_meta(fd, m->page_size, size, &second) && second.page_size == m->page_size &&
        second.transaction > m->transaction)
      *m = second;
    return true;
  }
  for (uint64_t at = 512; at <= 1 << 20; at *= 2) {
    if (read_meta(fd, at, size, m) && m->page_size == at) return true;
  }
  return false;
}

static bool copy(kw_slice from, kw_slice *to) {
  uint8_t *bytes = kw_alloc(from.len + 1);
  if (bytes == NULL) return false;
  if (from.len > 0) memcpy(bytes, from.data, from.len);
  *to = kw_slice_of(bytes, from.len);
  return true;
}

static int add_bucket(kw_bolt_reader *r, kw_slice name, kw_slice value) {
  if (value.len < BUCKET || r->n_buckets == KW_BOLT_BUCKETS) return KW_ERR_CORRUPT;
  bucket *b = &r->buckets[r->n_buckets++];
  kw_slice embedded = kw_slice_of(value.data + BUCKET, value.len - BUCKET);
  b->root = get_little(value.data, 8);
  if (b->root != 0) embedded.len = 0;
  if (b->root == 0 && embedded.len == 0) return KW_ERR_CORRUPT;
  return copy(name, &b->name) && copy(embedded, &b->embedded) ? KW_OK : KW_ERR_NO_MEMORY;
}

static int read_buckets(kw_bolt_reader *r) {
  kw_slice name, value;
  uint64_t flags;
  int rc = begin_walk(r, r->root, (kw_slice){0});
  while (rc == KW_OK) {
    int found = next(r, &name, &value, &flags);
    if (found <= 0) return found;
    if (flags & BUCKET_FLAG) rc = add_bucket(r, name, value);
  }
  return rc;
}

int kw_bolt_open(int fd, int64_t size, kw_bolt_reader **result) {
  meta m;
  if (!find_meta(fd, size, &m)) return KW_ERR_CORRUPT;
  uint64_t pages = (uint64_t)size / m.page_size;
  if (m.pages > pages) return KW_ERR_CORRUPT; /* the file is truncated */
  kw_bolt_reader *r = kw_alloc_zeroed(sizeof *r);
  if (r == NULL) return KW_ERR_NO_MEMORY;
  r->fd = fd;
  r->page_size = (size_t)m.page_size;
  r->pages = m.pages;
  r->root = m.root;
  r->seen = kw_alloc((size_t)(r->pages / 8 + 1));
  int rc = r->seen == NULL ? KW_ERR_NO_MEMORY : read_buckets(r);
  if (rc != KW_OK) {
    kw_bolt_close(r);
    return rc;
  }
  *result = r;
  return KW_OK;
}

void kw_bolt_close(kw_bolt_reader *r) {
  for (size_t i = 0; i < KW_BOLT_DEPTH; i++) kw_free(r->frames[i].page);
  for (size_t i = 0; i < r->n_buckets; i++) {
    kw_free((void *)r->buckets[i].name.data);
    kw_free((void *)r->buckets[i].embedded.data);
  }
  kw_free(r->seen);
  kw_free(r);
}

/* }====== */

static const bucket *find(const kw_bolt_reader *r, kw_slice name) {
  for (size_t i = 0; i < r->n_buckets; i++) {
    if (kw_slice_equal(r->buckets[i].name, name)) return &r->buckets[i];
  }
  return NULL;
}

bool kw_bolt_has(const kw_bolt_reader *r, kw_slice name) {
  return find(r, name) != NULL;
}

int kw_bolt_seek(kw_bolt_reader *r, kw_slice name) {
  const bucket *b = find(r, name);
  r->depth = 0;
  return b == NULL ? KW_OK : begin_walk(r, b->root, b->embedded);
}

int kw_bolt_next(kw_bolt_reader *r, kw_slice *key, kw_slice *value) {
  uint64_t flags;
  int rc;
  do {
    rc = next(r, key, value, &flags);
  } while (rc > 0 && flags & BUCKET_FLAG);
  return rc;
}

/* }====== */
