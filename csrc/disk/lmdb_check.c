/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* posix_fadvise */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "disk/lmdb_check.h"

#include "base/mem.h"
#include "disk/lmdb_table.h"

#define MAGIC 0xBEEFC0DE
#define VERSION 1
#define META_PAGES 2
#define META_FLAG 8           /* of a page */
#define INTEGER_KEYS 0x08     /* of the tree of free pages */
#define OF_ENVIRONMENT 0x4000 /* MDB_NOSUBDIR, among the flags of that tree */
#define LEAST_PAGE 512
#define MOST_PAGE 32768

/* Bytes of one call: Linux's default read-ahead of a file, and its limit per call. */
#define AHEAD_CALL (128 << 10)
#define AHEAD_STEP (4 << 20)   /* bytes that are read ahead at once */
#define AHEAD_BYTES (64 << 20) /* bytes that are read ahead of the first page */

/* LMDB's description of a tree. */
typedef struct tree {
  uint32_t pad;
  uint16_t flags;
  uint16_t depth;
  size_t branches; /* number of branch pages */
  size_t leaves;   /* number of leaf pages */
  size_t overflow; /* number of overflow pages */
  size_t entries;
  size_t root;
} tree;

_Static_assert(sizeof(tree) == KW_LMDB_TREE, "LMDB's description of a tree");

/* A meta page. */
typedef struct head {
  size_t page_number;
  uint16_t unused;
  uint16_t flags;
  uint32_t unused_too;
  uint32_t magic;
  uint32_t version;
  size_t address;
  size_t map_bytes;
  tree trees[2]; /* of free pages, and of the tables */
  size_t last_page;
  size_t txn;
} head;

_Static_assert(sizeof(head) == KW_LMDB_HEAD, "LMDB's meta page");

/* Which tree is walked: a table, or one of LMDB's own. */
enum { FREE = KW_LMDB_TABLES, MAIN };

typedef struct check {
  int fd;
  kw_lmdb_pages pages; /* all pages that were ever in use */
  size_t txn;          /* the newest transaction */
  uint8_t *seen;       /* a bit for each page */
  size_t n_seen;
  size_t ahead; /* bytes that were read ahead */
  tree tables[KW_LMDB_TABLES];
} check;

/* {====== Pages ====== */

/* Reading ahead is faster than checking: when half of the pages are checked, all of them are in the page cache,
 * whatever the order of access. */
static void read_ahead(check *c) {
  size_t until = AHEAD_BYTES + 2 * c->n_seen * c->pages.page, end = c->pages.n * c->pages.page;
  if (until <= c->ahead || c->ahead >= end) return;
  for (; c->ahead < until + AHEAD_STEP && c->ahead < end; c->ahead += AHEAD_CALL)
    posix_fadvise(c->fd, (off_t)c->ahead, AHEAD_CALL, POSIX_FADV_WILLNEED);
}

/* Notes that a run of pages is in a tree, or free. Returns false if a page is out of bounds, or noted already. */
static bool note(check *c, size_t first, size_t n) {
  if (first < META_PAGES || first >= c->pages.n || n > c->pages.n - first) return false;
  for (size_t i = first; i < first + n; i++) {
    uint8_t bit = (uint8_t)(1u << i % 8);
    if (c->seen[i / 8] & bit) return false;
    c->seen[i / 8] |= bit;
  }
  c->n_seen += n;
  return true;
}

/* }====== */

/* {====== Entries ====== */

/* Checks a list of free pages: their number, and the pages. Its key is the transaction that has freed them. */
static bool check_free(check *c, kw_slice key, kw_slice list) {
  size_t txn, n, page;
  if (key.len != sizeof txn || list.len < sizeof n) return false;
  memcpy(&txn, key.data, sizeof txn);
  memcpy(&n, list.data, sizeof n);
  if (txn > c->txn || n > list.len / sizeof page - 1) return false;
  for (size_t i = 1; i <= n; i++) {
    memcpy(&page, list.data + i * sizeof page, sizeof page);
    if (!note(c, page, 1)) return false;
  }
  return true;
}

static bool check_table(check *c, const kw_lmdb_node *node) {
  if (node->flags != KW_LMDB_SUBTREE || node->value.len != sizeof(tree)) return false;
  for (int i = 0; i < KW_LMDB_TABLES; i++) {
    if (kw_slice_is(node->key, kw_lmdb_names[i]))
      memcpy(&c->tables[i], node->value.data, sizeof(tree));
  }
  return true;
}

/* Adds the pages of a large value to those of the tree. */
static bool check_entry(check *c, int which, const kw_lmdb_node *node, tree *counted) {
  kw_slice value = node->value;
  size_t first, n;
  counted->entries++;
  if (which == MAIN) return check_table(c, node);
  if (node->flags == KW_LMDB_LARGE) {
    if (!kw_lmdb_large(&c->pages, node, &first, &n, &value) || !note(c, first, n)) return false;
    counted->overflow += n;
  } else if (node->flags != 0) {
    return false;
  }
  if (which == FREE) return check_free(c, node->key, value);
  return kw_lmdb_value_check((kw_lmdb_table)which, node->key, &value);
}

/* }====== */

/* {====== Trees ====== */

/* Keys of free lists are numbers in the machine's byte order. */
static int compare(int which, kw_slice a, kw_slice b) {
  uint64_t x, y;
  if (which != FREE || a.len != sizeof x || b.len != sizeof y) return kw_slice_compare(a, b);
  memcpy(&x, a.data, sizeof x);
  memcpy(&y, b.data, sizeof y);
  return kw_order_unsigned(x, y);
}

/* Checks a page and the pages below it. Its keys must be at or above `low` and below `high`; NULL: no bound. The first
 * key of a branch is ignored. `depth` is the number of levels from this page on. */
static bool walk(check *c, int which, size_t number, int depth, const kw_slice *low,
                 const kw_slice *high, tree *counted) {
  bool is_leaf;
  size_t n;
  kw_lmdb_node node, next;
  if (!note(c, number, 1)) return false;
  read_ahead(c);
  const uint8_t *page = kw_lmdb_page(&c->pages, number, &is_leaf, &n);
  if (page == NULL || is_leaf != (depth == 1)) return false;
  if (!is_leaf && n == 1 && which != FREE) return false;
  *(is_leaf ? &counted->leaves : &counted->branches) += 1;
  if (!kw_lmdb_node_read(&c->pages, page, 0, &node)) return false;
  if (is_leaf && low != NULL && compare(which, node.key, *low) < 0) return false;
  for (size_t i = 0; i < n; i++, node = next) {
    bool is_last = i + 1 == n;
    const kw_slice *until = high;
    if (!is_last) {
      if (!kw_lmdb_node_read(&c->pages, page, i + 1, &next)) return false;
      const kw_slice *from = is_leaf || i > 0 ? &node.key : low;
      if (from != NULL && compare(which, *from, next.key) >= 0) return false;
      until = &next.key;
    } else if (high != NULL && (is_leaf || i > 0) && compare(which, node.key, *high) >= 0) {
      return false;
    }
    bool ok = is_leaf
                  ? check_entry(c, which, &node, counted)
                  : walk(c, which, node.child, depth - 1, i > 0 ? &node.key : low, until, counted);
    if (!ok) return false;
  }
  return true;
}

static bool check_tree(check *c, int which, const tree *t) {
  tree counted = {0};
  if (t->root == KW_LMDB_NO_PAGE)
    return t->depth == 0 && t->branches == 0 && t->leaves == 0 && t->overflow == 0 &&
           t->entries == 0;
  if (t->depth < 1 || t->depth > KW_LMDB_DEPTH) return false;
  return walk(c, which, t->root, t->depth, NULL, NULL, &counted) &&
         counted.branches == t->branches && counted.leaves == t->leaves &&
         counted.overflow == t->overflow && counted.entries == t->entries;
}

/* }====== */

/* {====== The table meta ====== */

/* Finds an entry of a tree. Returns false if there is none. */
static bool find(const check *c, size_t root, const char *name, kw_slice *value) {
  kw_lmdb_tree in = {.pages = c->pages, .root = root};
  kw_lmdb_cursor cursor;
  return kw_lmdb_cursor_seek(&cursor, &in, kw_slice_text(name), value) > 0 &&
         kw_slice_is(cursor.key, name);
}

/* Reads the number of the format; -1 if it is missing or damaged. */
static int64_t find_format(const check *c) {
  kw_slice value;
  if (!find(c, c->tables[KW_LMDB_META].root, KW_LMDB_FORMAT_NAME, &value)) return -1;
  bool ok = kw_lmdb_value_check(KW_LMDB_META, kw_slice_text(KW_LMDB_FORMAT_NAME), &value);
  return ok && value.len == 8 ? (int64_t)kw_big_endian_get64(value.data) : -1;
}

/* Finds the counts of a state, whose table of tables has this root. Returns NULL if the counts are damaged. */
static const uint8_t *find_counts(const check *c, size_t root) {
  kw_slice value;
  tree meta;
  if (!find(c, root, kw_lmdb_names[KW_LMDB_META], &value) || value.len != sizeof meta) return NULL;
  memcpy(&meta, value.data, sizeof meta);
  if (!find(c, meta.root, KW_LMDB_COUNTS_NAME, &value) ||
      !kw_lmdb_value_check(KW_LMDB_META, kw_slice_text(KW_LMDB_COUNTS_NAME), &value))
    return NULL;
  return value.len == KW_LMDB_COUNTS ? value.data : NULL;
}

/* Checks the counts of the newest state, and that the state before it, which LMDB has not overwritten yet, has one
 * commit less. In a new file, or the copy of a defragmentation, the state before the first one is empty. */
static bool check_counts(const check *c, const head *newest, const head *before) {
  const uint8_t *counts = find_counts(c, newest->trees[1].root);
  if (counts == NULL) return false;
  for (int i = KW_LMDB_META + 1; i < KW_LMDB_TABLES; i++) {
    if (kw_big_endian_get64(counts + 8 * i) != c->tables[i].entries) return false;
  }
  size_t root = before->trees[1].root;
  if (before->txn == 0) return root == KW_LMDB_NO_PAGE;
  const uint8_t *last = find_counts(c, root);
  return last != NULL && kw_big_endian_get64(last) + 1 == kw_big_endian_get64(counts);
}

/* }====== */

/* {====== Meta pages ====== */

static bool is_head(const head *h, size_t number) {
  size_t page = h->trees[0].pad;
  return h->page_number == number && h->flags == META_FLAG && h->magic == MAGIC &&
         h->version == VERSION && page >= LEAST_PAGE && page <= MOST_PAGE &&
         (page & (page - 1)) == 0;
}

/* Transactions write the two meta pages alternately; even transactions write the first page. */
static bool are_in_turn(const head *even, const head *odd) {
  if (even->txn == 0 && odd->txn == 0) return true; /* a new file */
  return even->txn % 2 == 0 && (even->txn + 1 == odd->txn || odd->txn + 1 == even->txn);
}

/* Finds the newest meta page, and the previous one. Returns 0, KW_LMDB_INCOMPLETE or MDB_CORRUPTED. */
static int find_heads(const uint8_t *map, size_t size, head *newest, head *before) {
  head heads[META_PAGES];
  if (size < sizeof *newest) return KW_LMDB_INCOMPLETE;
  memcpy(&heads[0], map, sizeof heads[0]);
  if (!is_head(&heads[0], 0)) return MDB_CORRUPTED;
  size_t page = heads[0].trees[0].pad;
  if (size < META_PAGES * page) return KW_LMDB_INCOMPLETE;
  memcpy(&heads[1], map + page, sizeof heads[1]);
  bool ok =
      is_head(&heads[1], 1) && heads[1].trees[0].pad == page && are_in_turn(&heads[0], &heads[1]);
  if (!ok) return MDB_CORRUPTED;
  bool is_second = heads[1].txn > heads[0].txn;
  *newest = heads[is_second];
  *before = heads[!is_second];
  return (newest->trees[0].flags & ~OF_ENVIRONMENT) == INTEGER_KEYS ? 0 : MDB_CORRUPTED;
}

/* }====== */

/* Checks the format before the tables, which may be different in another format. */
static int check_all(check *c, const head *h, const head *before) {
  bool ok = h->trees[1].flags == 0 && check_tree(c, MAIN, &h->trees[1]) &&
            h->trees[1].entries == KW_LMDB_TABLES;
  int64_t format = ok ? find_format(c) : -1;
  if (format >= 0 && format != KW_LMDB_FORMAT) return KW_LMDB_OTHER_FORMAT;
  ok = format == KW_LMDB_FORMAT && check_tree(c, FREE, &h->trees[0]);
  for (int i = 0; i < KW_LMDB_TABLES && ok; i++)
    ok = c->tables[i].flags == 0 && check_tree(c, i, &c->tables[i]);
  return ok && check_counts(c, h, before) ? 0 : MDB_CORRUPTED;
}

int kw_lmdb_check(int fd, const uint8_t *map, size_t map_bytes) {
  struct stat st;
  head h, before;
  if (fstat(fd, &st) < 0) return errno;
  size_t size = kw_min_size((size_t)st.st_size, map_bytes);
  int rc = find_heads(map, size, &h, &before);
  if (rc != 0) return rc;
  size_t page = h.trees[0].pad;
  if (h.last_page >= size / page) return KW_LMDB_INCOMPLETE;
  check c = {.fd = fd, .pages = {map, page, h.last_page + 1}, .txn = h.txn};
  c.seen = kw_alloc_zeroed(c.pages.n / 8 + 1);
  if (c.seen == NULL) return ENOMEM;
  rc = check_all(&c, &h, &before);
  kw_free(c.seen);
  return rc;
}
