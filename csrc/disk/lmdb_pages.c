/* SPDX-License-Identifier: MIT */
#include "disk/lmdb_pages.h"

#include "model/error.h"

enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4 };                        /* flags of a page */
enum { FLAGS = 10, LOWER = 12, UPPER = 14, RUN = 12, HEADER = 16 }; /* offsets in a page */
enum { NODE_FLAGS = 4, KEY_SIZE = 6, NODE = 8 };                    /* in a node */

static uint16_t get16(const uint8_t *from) {
  uint16_t v;
  memcpy(&v, from, sizeof v);
  return v;
}

static uint32_t get32(const uint8_t *from) {
  uint32_t v;
  memcpy(&v, from, sizeof v);
  return v;
}

static uint64_t get64(const uint8_t *from) {
  uint64_t v;
  memcpy(&v, from, sizeof v);
  return v;
}

/* {====== Pages ====== */

static const uint8_t *page_at(const kw_lmdb_pages *pages, size_t number) {
  if (number >= pages->n) return NULL;
  const uint8_t *page = pages->map + number * pages->page;
  return get64(page) == number ? page : NULL;
}

const uint8_t *kw_lmdb_page(const kw_lmdb_pages *pages, size_t number, bool *is_leaf, size_t *n) {
  const uint8_t *page = page_at(pages, number);
  if (page == NULL) return NULL;
  unsigned flags = get16(page + FLAGS);
  *is_leaf = flags == LEAF;
  if (flags != LEAF && flags != BRANCH) return NULL;
  size_t lower = get16(page + LOWER), upper = get16(page + UPPER);
  if (lower <= HEADER || lower % 2 != 0 || lower > upper || upper > pages->page) return NULL;
  *n = (lower - HEADER) / 2;
  return page;
}

/* Finds the key of a node. The node must be after all offsets of the page, and the key must end within the page. */
static const uint8_t *find_node(const kw_lmdb_pages *pages, const uint8_t *page, size_t at,
                                kw_slice *key) {
  size_t offset = get16(page + HEADER + 2 * at);
  if (offset < get16(page + UPPER) || offset + NODE > pages->page) return NULL;
  const uint8_t *node = page + offset;
  *key = kw_slice_of(node + NODE, get16(node + KEY_SIZE));
  return offset + NODE + key->len <= pages->page ? node : NULL;
}

bool kw_lmdb_node_read(const kw_lmdb_pages *pages, const uint8_t *page, size_t at,
                       kw_lmdb_node *node) {
  const uint8_t *from = find_node(pages, page, at, &node->key);
  if (from == NULL) return false;
  node->flags = get16(from + NODE_FLAGS);
  node->size = get32(from);
  node->child = node->size | (size_t)node->flags << 32;
  if (get16(page + FLAGS) == BRANCH) return true;
  const uint8_t *value = node->key.data + node->key.len;
  node->value = kw_slice_of(value, node->flags & KW_LMDB_LARGE ? sizeof(uint64_t) : node->size);
  return node->value.len <= (size_t)(page + pages->page - value);
}

bool kw_lmdb_large(const kw_lmdb_pages *pages, const kw_lmdb_node *node, size_t *first,
                   size_t *n_pages, kw_slice *value) {
  *first = get64(node->value.data);
  const uint8_t *page = page_at(pages, *first);
  if (page == NULL || get16(page + FLAGS) != OVERFLOW) return false;
  *n_pages = get32(page + RUN);
  *value = kw_slice_of(page + HEADER, node->size);
  return *n_pages <= pages->n - *first && HEADER + node->size <= *n_pages * pages->page;
}

/* }====== */

/* {====== Cursors ====== */

#define LOST (-1) /* depth of a cursor that has found a damaged page */

/* Returns the index of the first node, from `at` on, whose key is not below `key`; in a branch, whose key is above
 * `key`. Returns SIZE_MAX if a node is damaged. */
static size_t search(const kw_lmdb_pages *pages, const uint8_t *page, bool is_leaf, size_t n,
                     kw_slice key) {
  size_t low = is_leaf ? 0 : 1, high = n;
  kw_slice other;
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    if (find_node(pages, page, mid, &other) == NULL) return SIZE_MAX;
    if (kw_slice_compare(other, key) < (is_leaf ? 0 : 1)) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

/* Moves down to a leaf: to the first entry that is not below `key`, or to the first one if `key` is NULL. Returns false
 * if a page is damaged. */
static bool descend(kw_lmdb_cursor *c, size_t number, const kw_slice *key) {
  const kw_lmdb_pages *pages = &c->tree->pages;
  kw_lmdb_node node;
  bool is_leaf = false;
  size_t n, at = 0;
  while (!is_leaf) {
    const uint8_t *page = kw_lmdb_page(pages, number, &is_leaf, &n);
    if (page == NULL || c->depth == KW_LMDB_DEPTH) return false;
    if (key != NULL) at = search(pages, page, is_leaf, n, *key);
    if (key != NULL && !is_leaf) at--;
    if (at > n || (!is_leaf && !kw_lmdb_node_read(pages, page, at, &node))) return false;
    c->path[c->depth].page = page;
    c->path[c->depth].at = (uint32_t)at;
    c->path[c->depth++].n = (uint32_t)n;
    number = node.child;
  }
  return true;
}

/* Reads the entry at the position, or at the end of a leaf, the first entry of the next leaf. */
static int read_entry(kw_lmdb_cursor *c, kw_slice *value) {
  const kw_lmdb_pages *pages = &c->tree->pages;
  kw_lmdb_node node;
  size_t first, n;
  int leaf = c->depth;
  while (c->path[c->depth - 1].at == c->path[c->depth - 1].n) {
    if (--c->depth == 0) return 0;
    c->path[c->depth - 1].at++;
  }
  if (c->depth < leaf &&
      (!kw_lmdb_node_read(pages, c->path[c->depth - 1].page, c->path[c->depth - 1].at, &node) ||
       !descend(c, node.child, NULL)))
    return KW_ERR_CORRUPT;
  if (!kw_lmdb_node_read(pages, c->path[c->depth - 1].page, c->path[c->depth - 1].at, &node))
    return KW_ERR_CORRUPT;
  c->key = node.key;
  *value = node.value;
  if (!(node.flags & KW_LMDB_LARGE)) return 1;
  return kw_lmdb_large(pages, &node, &first, &n, value) ? 1 : KW_ERR_CORRUPT;
}

int kw_lmdb_cursor_seek(kw_lmdb_cursor *c, const kw_lmdb_tree *tree, kw_slice key,
                        kw_slice *value) {
  c->tree = tree;
  c->depth = 0;
  if (tree->root == KW_LMDB_NO_PAGE) return 0;
  int rc = descend(c, tree->root, &key) ? read_entry(c, value) : KW_ERR_CORRUPT;
  if (rc > 0 && kw_slice_compare(c->key, key) < 0) rc = KW_ERR_CORRUPT;
  if (rc < 0) c->depth = LOST;
  return rc;
}

/* Checks that keys rise, because a damaged tree might have a cycle. */
int kw_lmdb_cursor_next(kw_lmdb_cursor *c, kw_slice *value) {
  kw_slice last = c->key;
  if (c->depth <= 0) return c->depth == 0 ? 0 : KW_ERR_CORRUPT;
  c->path[c->depth - 1].at++;
  int rc = read_entry(c, value);
  if (rc > 0 && kw_slice_compare(c->key, last) <= 0) rc = KW_ERR_CORRUPT;
  if (rc < 0) c->depth = LOST;
  return rc;
}

/* }====== */
