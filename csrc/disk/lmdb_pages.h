/* SPDX-License-Identifier: MIT
 *
 * lmdb_pages: reads the pages of an LMDB file through a separate map, and trusts no number on them.
 *
 * LMDB itself trusts its pages: because of a wrong bit in an offset or a size it would read outside of a page, or of
 * its map. So an open store reads its records through this file, and writes them through LMDB. The layout is that of
 * LMDB 0.9, little-endian and with 64 bits:
 *
 *   page      number (8), unused (2), flags (2), end of the offsets (2), start of the nodes (2)
 *             an overflow page has, instead of the last two, the number of pages in the run (4)
 *   offsets   of the nodes in the page (2 each), in the order of their keys
 *   node      of a leaf: size of the value (4), flags (2), size of the key (2), key, value
 *             of a branch: page of the child (6), size of the key (2), key: no key in the child is below it
 *
 * The first key of a branch is ignored. A large value is not in its node: the node has the number (8) of the value's
 * first overflow page.
 */
#ifndef KW_DISK_LMDB_PAGES_H
#define KW_DISK_LMDB_PAGES_H

#include "base/slice.h"

#define KW_LMDB_NO_PAGE SIZE_MAX /* root of an empty tree */
#define KW_LMDB_DEPTH 32         /* limit of LMDB for the levels of a tree */

enum { KW_LMDB_LARGE = 1, KW_LMDB_SUBTREE = 2 }; /* flags of a node of a leaf */

/* The pages of a file, as they are mapped. */
typedef struct kw_lmdb_pages {
  const uint8_t *map;
  size_t page; /* bytes of a page */
  size_t n;    /* pages that may be read */
} kw_lmdb_pages;

typedef struct kw_lmdb_node {
  kw_slice key;
  size_t child;   /* number of the child's page, in a branch */
  unsigned flags; /* this field and the next two are those of a leaf */
  kw_slice value; /* the bytes in the node: the value, or the page number of a large one */
  size_t size;    /* of the value, wherever it is */
} kw_lmdb_node;

/* Returns a page that is a branch or a leaf with a sound header, and the number of its nodes; else NULL. */
const uint8_t *kw_lmdb_page(const kw_lmdb_pages *pages, size_t number, bool *is_leaf, size_t *n);

/* Reads a node of such a page, at an index below the number of nodes. Returns false if the node is not within the
 * page. */
bool kw_lmdb_node_read(const kw_lmdb_pages *pages, const uint8_t *page, size_t at,
                       kw_lmdb_node *node);

/* Finds a large value, and the run of pages that it takes. Returns false if the run is damaged. */
bool kw_lmdb_large(const kw_lmdb_pages *pages, const kw_lmdb_node *node, size_t *first,
                   size_t *n_pages, kw_slice *value);

/* A tree of keys and values. */
typedef struct kw_lmdb_tree {
  kw_lmdb_pages pages;
  size_t root;
} kw_lmdb_tree;

/* A position in a tree, set by a seek. */
typedef struct kw_lmdb_cursor {
  const kw_lmdb_tree *tree;
  kw_slice key; /* of the entry at the position */
  int depth;    /* levels of the path; 0: after the last entry; negative: a page is damaged */
  struct {
    const uint8_t *page;
    uint32_t at;
    uint32_t n;
  } path[KW_LMDB_DEPTH];
} kw_lmdb_cursor;

/* Moves to the first entry whose key is not below `key`, and reads it into cursor->key and *value. Returns 1, 0 if
 * there is none, or KW_ERR_CORRUPT. Key and value are valid as long as the pages are. The tree is borrowed. */
int kw_lmdb_cursor_seek(kw_lmdb_cursor *cursor, const kw_lmdb_tree *tree, kw_slice key,
                        kw_slice *value);

/* Moves to the next entry, and reads it. Returns what kw_lmdb_cursor_seek returns. */
int kw_lmdb_cursor_next(kw_lmdb_cursor *cursor, kw_slice *value);

#endif
