/* SPDX-License-Identifier: MIT */
#include "store/index.h"

#include "base/mem.h"

/* Longer common prefixes are cut: more heads are then equal, and keys are compared. */
#define PREFIX_MAX 52
#define MERGE_BELOW (KW_INDEX_FAN / 4)
#define CACHE_LINE 64

struct kw_index_node {
  uint8_t n;
  bool is_leaf;
  uint8_t prefix_len;
  uint8_t prefix[PREFIX_MAX];
  uint64_t heads[KW_INDEX_FAN];
  kw_key_history *items[KW_INDEX_FAN]; /* of an inner node: the least key below each child */
};

struct kw_index_leaf {
  kw_index_node node;
  kw_index_leaf *next;
  kw_index_leaf *prev;
  uint64_t live; /* bit i: items[i] lives */
};

typedef struct inner {
  kw_index_node node;
  kw_index_node *children[KW_INDEX_FAN];
  int64_t live[KW_INDEX_FAN];
} inner;

/* An entry of a node, leaf or inner, at one position. */
typedef struct entry {
  kw_key_history *item;
  kw_index_node *child; /* inner only */
  int64_t live;         /* leaf: 0 or 1 */
} entry;

static kw_index_leaf *leaf_of(const kw_index_node *node) {
  assert(node->is_leaf);
  return KW_CONTAINER_OF(node, kw_index_leaf, node);
}

static inner *inner_of(const kw_index_node *node) {
  assert(!node->is_leaf);
  return KW_CONTAINER_OF(node, inner, node);
}

static kw_index_node *node_new(bool is_leaf) {
  kw_index_node *node = kw_alloc(is_leaf ? sizeof(kw_index_leaf) : sizeof(inner));
  if (node == NULL) return NULL;
  node->n = 0;
  node->is_leaf = is_leaf;
  node->prefix_len = 0;
  if (is_leaf) {
    leaf_of(node)->next = leaf_of(node)->prev = NULL;
    leaf_of(node)->live = 0;
  }
  return node;
}

/* {====== Prefix and heads ====== */

static size_t common_length(const uint8_t *a, const uint8_t *b, size_t max) {
  size_t n = 0;
  while (n < max && a[n] == b[n]) n++;
  return n;
}

/* Returns the eight bytes after the first `skip` of a key as a number, with zeros after the end of the key. Numbers
 * are in the order of the bytes. */
static uint64_t head_of(kw_slice key, size_t skip) {
  uint64_t head = 0;
  size_t len = key.len - skip;
  if (len >= 8) {
    memcpy(&head, key.data + skip, 8);
  } else {
    memcpy(&head, key.data + skip, len);
  }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  head = __builtin_bswap64(head);
#endif
  return head;
}

static void set_prefix(kw_index_node *node, const uint8_t *prefix, size_t len) {
  node->prefix_len = (uint8_t)len;
  memmove(node->prefix, prefix, len);
  for (unsigned i = 0; i < node->n; i++) {
    node->heads[i] = head_of(kw_key_history_key(node->items[i]), len);
  }
}

/* Shortens the prefix until `key` begins with it, too. */
static void admit(kw_index_node *node, kw_slice key) {
  if (node->n == 0) {
    set_prefix(node, key.data, kw_min_size(key.len, PREFIX_MAX));
    return;
  }
  size_t max = kw_min_size(key.len, node->prefix_len);
  size_t len = common_length(key.data, node->prefix, max);
  if (len < node->prefix_len) set_prefix(node, node->prefix, len);
}

/* Makes the prefix as long as possible: all keys share the common prefix of the first and the last one. */
static void tighten(kw_index_node *node) {
  kw_slice first = kw_key_history_key(node->items[0]);
  kw_slice last = kw_key_history_key(node->items[node->n - 1]);
  size_t max = kw_min_size(kw_min_size(first.len, last.len), PREFIX_MAX);
  size_t len = common_length(first.data, last.data, max);
  if (len != node->prefix_len) set_prefix(node, first.data, len);
}

/* Returns the position of the first head >= `head`; with `after`, of the first one above it. */
static unsigned head_bound(const kw_index_node *node, uint64_t head, bool after) {
  const uint64_t *base = node->heads;
  unsigned n = node->n;
  while (n > 0) {
    unsigned half = n / 2;
    bool right = after ? base[half] <= head : base[half] < head;
    base = right ? base + half + 1 : base;
    n = right ? n - half - 1 : half;
  }
  return (unsigned)(base - node->heads);
}

/* Returns how many keys of the node are below `key`. Sets *found to true if the next one equals `key`. */
static unsigned rank_of(const kw_index_node *node, kw_slice key, bool *found) {
  size_t common = kw_min_size(key.len, node->prefix_len);
  int c = memcmp(key.data, node->prefix, common);
  *found = false;
  if (c != 0) return c < 0 ? 0 : node->n;
  if (key.len < node->prefix_len) return 0;
  uint64_t head = head_of(key, node->prefix_len);
  unsigned low = head_bound(node, head, false);
  if (low == node->n || node->heads[low] != head) return low;
  unsigned high =
      low + 1 == node->n || node->heads[low + 1] != head ? low + 1 : head_bound(node, head, true);
  while (low < high) {
    unsigned mid = low + (high - low) / 2;
    c = kw_slice_compare(kw_key_history_key(node->items[mid]), key);
    if (c == 0) {
      *found = true;
      return mid;
    }
    if (c < 0) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

/* Returns the position of the child that has `key`, or would have it. */
static unsigned child_for(const kw_index_node *node, kw_slice key) {
  bool found;
  unsigned rank = rank_of(node, key, &found);
  return found || rank == 0 ? rank : rank - 1;
}

/* Returns a child, and prefetches all of its cache lines: otherwise a search would wait for them one by one. */
static kw_index_node *child_at(const kw_index_node *node, unsigned at) {
  kw_index_node *child = inner_of(node)->children[at];
  for (size_t i = 0; i < sizeof *child; i += CACHE_LINE) __builtin_prefetch((char *)child + i);
  return child;
}

/* }====== */

/* {====== Entries ====== */

static uint64_t bits_below(unsigned at) {
  return at >= 64 ? UINT64_MAX : (UINT64_C(1) << at) - 1;
}

static entry entry_at(const kw_index_node *node, unsigned at) {
  entry e = {.item = node->items[at]};
  if (node->is_leaf) {
    e.live = leaf_of(node)->live >> at & 1;
  } else {
    e.child = inner_of(node)->children[at];
    e.live = inner_of(node)->live[at];
  }
  return e;
}

static void write_entry(kw_index_node *node, unsigned at, entry e) {
  node->items[at] = e.item;
  node->heads[at] = head_of(kw_key_history_key(e.item), node->prefix_len);
  if (node->is_leaf) {
    uint64_t bit = UINT64_C(1) << at;
    kw_index_leaf *leaf = leaf_of(node);
    leaf->live = e.live ? leaf->live | bit : leaf->live & ~bit;
  } else {
    inner_of(node)->children[at] = e.child;
    inner_of(node)->live[at] = e.live;
  }
}

/* Opens (by = 1) or closes (by = -1) a gap: the entries from `at` on move by one position. */
static void shift(kw_index_node *node, unsigned at, int by) {
  size_t n = node->n - at;
  memmove(&node->heads[(int)at + by], &node->heads[at], n * sizeof node->heads[0]);
  memmove(&node->items[(int)at + by], &node->items[at], n * sizeof node->items[0]);
  if (node->is_leaf) {
    kw_index_leaf *leaf = leaf_of(node);
    uint64_t rest = leaf->live & ~bits_below(at);
    uint64_t kept = leaf->live & bits_below(by > 0 ? at : at - 1);
    leaf->live = kept | (by > 0 ? rest << 1 : rest >> 1);
  } else {
    inner *in = inner_of(node);
    memmove(&in->children[(int)at + by], &in->children[at], n * sizeof in->children[0]);
    memmove(&in->live[(int)at + by], &in->live[at], n * sizeof in->live[0]);
  }
  node->n = (uint8_t)(node->n + by);
}

static void insert_entry(kw_index_node *node, unsigned at, entry e) {
  assert(node->n < KW_INDEX_FAN);
  admit(node, kw_key_history_key(e.item));
  shift(node, at, 1);
  write_entry(node, at, e);
}

static void remove_entry(kw_index_node *node, unsigned at) {
  shift(node, at + 1, -1);
}

/* Moves the entries [from, n) of one node to the end of another. */
static void move_entries(kw_index_node *to, kw_index_node *node, unsigned from) {
  for (unsigned i = from; i < node->n; i++) insert_entry(to, to->n, entry_at(node, i));
  node->n = (uint8_t)from;
  if (node->is_leaf) leaf_of(node)->live &= bits_below(from);
}

static int64_t live_below(const kw_index_node *node, unsigned at) {
  if (node->is_leaf) return __builtin_popcountll(leaf_of(node)->live & bits_below(at));
  int64_t sum = 0;
  for (unsigned i = 0; i < at; i++) sum += inner_of(node)->live[i];
  return sum;
}

static entry entry_for(kw_index_node *child) {
  return (entry){.item = child->items[0], .child = child, .live = live_below(child, child->n)};
}

/* }====== */

/* {====== Finding ====== */

/* Sets the path to `key`, whose last step is the leaf and the rank in it. Returns true if the key exists. */
static bool descend(const kw_index *index, kw_slice key, kw_index_path *path) {
  kw_index_node *node = index->root;
  bool found;
  path->n = 0;
  for (;;) {
    bool is_leaf = node->is_leaf;
    unsigned at = is_leaf ? rank_of(node, key, &found) : child_for(node, key);
    path->steps[path->n].node = node;
    path->steps[path->n].at = at;
    path->n++;
    if (is_leaf) return found;
    node = child_at(node, at);
  }
}

static const kw_index_leaf *leaf_for(const kw_index *index, kw_slice key) {
  const kw_index_node *node = index->root;
  while (!node->is_leaf) node = child_at(node, child_for(node, key));
  return leaf_of(node);
}

kw_key_history *kw_index_find(const kw_index *index, kw_slice key) {
  bool found;
  if (index->root == NULL) return NULL;
  const kw_index_node *node = &leaf_for(index, key)->node;
  unsigned at = rank_of(node, key, &found);
  return found ? node->items[at] : NULL;
}

kw_index_cursor kw_index_seek(const kw_index *index, kw_slice key) {
  bool found;
  if (index->root == NULL) return (kw_index_cursor){0};
  const kw_index_leaf *leaf = leaf_for(index, key);
  return (kw_index_cursor){.leaf = leaf, .at = rank_of(&leaf->node, key, &found)};
}

kw_key_history *kw_index_next(kw_index_cursor *cursor) {
  while (cursor->leaf != NULL && cursor->at == cursor->leaf->node.n) {
    *cursor = (kw_index_cursor){.leaf = cursor->leaf->next};
  }
  if (cursor->leaf == NULL) return NULL;
  const kw_index_node *node = &cursor->leaf->node;
  if (cursor->at + 8 < node->n) __builtin_prefetch(node->items[cursor->at + 8]);
  return node->items[cursor->at++];
}

/* }====== */

/* {====== Live keys ====== */

/* Returns the leaf of the first (or with `back`, the last) live key below a node that has one. */
static const kw_index_leaf *live_leaf(const kw_index_node *node, bool back) {
  while (!node->is_leaf) {
    const inner *in = inner_of(node);
    unsigned at = back ? node->n - 1u : 0;
    while (in->live[at] == 0) at = back ? at - 1 : at + 1;
    node = in->children[at];
  }
  return leaf_of(node);
}

/* Returns the nearest leaf after (or with `back`, before) the leaf of `key` that has live keys, or NULL. */
static const kw_index_leaf *next_live_leaf(const kw_index *index, kw_slice key, bool back) {
  kw_index_path path;
  descend(index, key, &path);
  for (unsigned i = path.n - 1; i-- > 0;) {
    const inner *in = inner_of(path.steps[i].node);
    unsigned at = path.steps[i].at;
    while (back ? at > 0 : at + 1 < in->node.n) {
      at = back ? at - 1 : at + 1;
      if (in->live[at] > 0) return live_leaf(in->children[at], back);
    }
  }
  return NULL;
}

/* Returns the nearest leaf with live keys after (or with `back`, before) this one, or NULL. */
static const kw_index_leaf *live_neighbour(const kw_index *index, const kw_index_leaf *leaf,
                                           bool back) {
  const kw_index_leaf *beside = back ? leaf->prev : leaf->next;
  if (beside == NULL || beside->live != 0) return beside;
  return next_live_leaf(index, kw_key_history_key(leaf->node.items[0]), back);
}

kw_key_history *kw_index_next_live(const kw_index *index, kw_index_cursor *cursor) {
  while (cursor->leaf != NULL) {
    uint64_t mask = cursor->leaf->live & ~bits_below(cursor->at);
    if (mask != 0) {
      const kw_index_node *node = &cursor->leaf->node;
      cursor->at = (unsigned)__builtin_ctzll(mask);
      if (cursor->at + 8 < node->n) __builtin_prefetch(node->items[cursor->at + 8]);
      return node->items[cursor->at++];
    }
    *cursor = (kw_index_cursor){.leaf = live_neighbour(index, cursor->leaf, false)};
  }
  return NULL;
}

kw_key_history *kw_index_next_in(const kw_index *index, kw_index_cursor *cursor,
                                 const kw_range *range) {
  kw_key_history *history = kw_index_next_live(index, cursor);
  if (history == NULL || !kw_range_reaches(range, kw_key_history_key(history))) return NULL;
  return history;
}

kw_index_cursor kw_index_seek_back(const kw_index *index, kw_slice key, bool from_end) {
  if (!from_end) return kw_index_seek(index, key);
  const kw_index_node *node = index->root;
  if (node == NULL) return (kw_index_cursor){0};
  while (!node->is_leaf) node = inner_of(node)->children[node->n - 1];
  return (kw_index_cursor){.leaf = leaf_of(node), .at = node->n};
}

static kw_index_cursor end_of(const kw_index_leaf *leaf) {
  return (kw_index_cursor){.leaf = leaf, .at = leaf == NULL ? 0 : leaf->node.n};
}

kw_key_history *kw_index_previous(kw_index_cursor *cursor) {
  while (cursor->leaf != NULL && cursor->at == 0) *cursor = end_of(cursor->leaf->prev);
  return cursor->leaf == NULL ? NULL : cursor->leaf->node.items[--cursor->at];
}

kw_key_history *kw_index_previous_live(const kw_index *index, kw_index_cursor *cursor) {
  while (cursor->leaf != NULL) {
    uint64_t mask = cursor->leaf->live & bits_below(cursor->at);
    if (mask != 0) {
      cursor->at = 63u - (unsigned)__builtin_clzll(mask);
      return cursor->leaf->node.items[cursor->at];
    }
    *cursor = end_of(live_neighbour(index, cursor->leaf, true));
  }
  return NULL;
}

/* }====== */

/* {====== Counting ====== */

static kw_index_path *path_to(kw_index *index, const kw_key_history *history) {
  if (index->path_of != history) {
    bool found = descend(index, kw_key_history_key(history), &index->path);
    assert(found);
    (void)found;
    index->path_of = history;
  }
  return &index->path;
}

void kw_index_set_live(kw_index *index, const kw_key_history *history, bool live) {
  kw_index_path *path = path_to(index, history);
  unsigned last = path->n - 1;
  uint64_t bit = UINT64_C(1) << path->steps[last].at;
  kw_index_leaf *leaf = leaf_of(path->steps[last].node);
  if (((leaf->live & bit) != 0) == live) return;
  leaf->live ^= bit;
  for (unsigned i = 0; i < last; i++) {
    inner_of(path->steps[i].node)->live[path->steps[i].at] += live ? 1 : -1;
  }
  index->live += live ? 1 : -1;
}

/* Returns how many live keys are below `key`. */
static int64_t count_below(const kw_index *index, kw_slice key) {
  kw_index_path path;
  int64_t sum = 0;
  descend(index, key, &path);
  for (unsigned i = 0; i < path.n; i++) sum += live_below(path.steps[i].node, path.steps[i].at);
  return sum;
}

int64_t kw_index_count(const kw_index *index, const kw_range *range) {
  if (index->root == NULL) return 0;
  if (kw_range_is_point(range)) {
    const kw_key_history *history = kw_index_find(index, range->key);
    return history != NULL && kw_key_history_is_live(history);
  }
  int64_t until = kw_range_is_open(range) ? index->live : count_below(index, range->end);
  int64_t from = count_below(index, range->key);
  return until > from ? until - from : 0;
}

/* }====== */

/* {====== Adding ====== */

/* Returns how many new nodes are needed to insert an entry at the end of the path. */
static unsigned nodes_needed(const kw_index_path *path) {
  unsigned full = 0;
  while (full < path->n && path->steps[path->n - 1 - full].node->n == KW_INDEX_FAN) full++;
  return full == path->n ? full + 1 : full; /* a full root needs a new one above */
}

static void chain_after(kw_index_leaf *leaf, kw_index_leaf *fresh) {
  fresh->next = leaf->next;
  fresh->prev = leaf;
  if (leaf->next != NULL) leaf->next->prev = fresh;
  leaf->next = fresh;
}

/* Moves the upper half of a full node to a fresh one, and inserts the entry into one of the two. If keys are added in
 * order, the new entry is above all others: then the fresh node gets only this entry, and the other node stays full. */
static void split(kw_index_node *node, kw_index_node *fresh, unsigned at, entry e) {
  if (node->is_leaf) chain_after(leaf_of(node), leaf_of(fresh));
  if (at < KW_INDEX_FAN) move_entries(fresh, node, KW_INDEX_FAN / 2);
  if (at <= node->n && at < KW_INDEX_FAN) {
    insert_entry(node, at, e);
  } else {
    insert_entry(fresh, at - node->n, e);
  }
  tighten(node);
  tighten(fresh);
}

/* Inserts an entry at the end of the path, and splits full nodes, from the leaf upwards. */
static void insert_along(kw_index *index, const kw_index_path *path, entry e,
                         kw_index_node **fresh) {
  for (unsigned i = path->n; i-- > 0;) {
    kw_index_node *node = path->steps[i].node;
    unsigned at = path->steps[i].at + (i + 1 < path->n); /* in inner nodes, after the split child */
    if (node->n < KW_INDEX_FAN) {
      insert_entry(node, at, e);
      return;
    }
    kw_index_node *right = *fresh++;
    split(node, right, at, e);
    if (i == 0) {
      kw_index_node *root = *fresh;
      insert_entry(root, 0, entry_for(node));
      insert_entry(root, 1, entry_for(right));
      index->root = root;
      return;
    }
    inner_of(path->steps[i - 1].node)->live[path->steps[i - 1].at] = live_below(node, node->n);
    e = entry_for(right);
  }
}

/* Allocates the nodes that an insertion needs, the leaf first. Returns false if memory is short. */
static bool make_nodes(kw_index_node **fresh, unsigned n) {
  for (unsigned i = 0; i < n; i++) {
    fresh[i] = node_new(i == 0);
    if (fresh[i] != NULL) continue;
    while (i-- > 0) kw_free(fresh[i]);
    return false;
  }
  return true;
}

/* An entry of an inner node has the least key below it. Writes a new least key of step `from` into the steps above. */
static void raise_least(const kw_index_path *path, unsigned from, kw_key_history *least) {
  for (unsigned i = from; i-- > 0;) {
    kw_index_node *node = path->steps[i].node;
    unsigned at = path->steps[i].at;
    entry e = entry_at(node, at);
    e.item = least;
    admit(node, kw_key_history_key(least));
    write_entry(node, at, e);
    if (at > 0) return;
  }
}

static bool insert(kw_index *index, kw_index_path *path, kw_key_history *history) {
  kw_index_node *fresh[KW_INDEX_MAX_DEPTH + 1];
  if (!make_nodes(fresh, nodes_needed(path))) return false;
  unsigned last = path->n - 1;
  bool splits = path->steps[last].node->n == KW_INDEX_FAN;
  if (path->steps[last].at == 0) raise_least(path, last, history); /* below all other keys */
  insert_along(index, path, (entry){.item = history}, fresh);
  index->n++;
  index->path_of = splits ? NULL : history;
  return true;
}

kw_key_history *kw_index_find_or_add(kw_index *index, kw_slice key) {
  index->path_of = NULL;
  if (index->root == NULL && (index->root = node_new(true)) == NULL) return NULL;
  kw_index_path *path = &index->path;
  if (descend(index, key, path)) {
    unsigned last = path->n - 1;
    kw_key_history *history = path->steps[last].node->items[path->steps[last].at];
    index->path_of = history;
    return history;
  }
  kw_key_history *history = kw_key_history_new(key);
  if (history != NULL && insert(index, path, history)) return history;
  if (history != NULL) kw_key_history_free(history);
  return NULL;
}

/* }====== */

/* {====== Removing ====== */

static void unchain(kw_index_leaf *leaf) {
  if (leaf->next != NULL) leaf->next->prev = leaf->prev;
  if (leaf->prev != NULL) leaf->prev->next = leaf->next;
}

static void node_free(kw_index_node *node) {
  if (node->is_leaf) unchain(leaf_of(node));
  kw_free(node);
}

/* Joins the children at `at` and `at` + 1 if one of them is nearly empty and both fit into half a node. */
static void merge(kw_index_node *parent, unsigned at) {
  inner *in = inner_of(parent);
  if (at + 1 >= parent->n) return;
  kw_index_node *left = in->children[at], *right = in->children[at + 1];
  if (left->n >= MERGE_BELOW && right->n >= MERGE_BELOW) return;
  if (left->n + right->n > KW_INDEX_FAN / 2) return;
  in->live[at] += in->live[at + 1];
  move_entries(left, right, 0);
  node_free(right);
  remove_entry(parent, at + 1);
}

static void collapse_root(kw_index *index) {
  while (index->root != NULL && !index->root->is_leaf && index->root->n == 1) {
    kw_index_node *root = index->root;
    index->root = inner_of(root)->children[0];
    kw_free(root);
  }
  if (index->root != NULL && index->root->n == 0) {
    kw_free(index->root);
    index->root = NULL;
  }
}

void kw_index_remove(kw_index *index, kw_key_history *history) {
  kw_index_path path = *path_to(index, history);
  index->path_of = NULL;
  assert(!kw_key_history_is_live(history));
  for (unsigned i = path.n; i-- > 0;) {
    kw_index_node *node = path.steps[i].node;
    unsigned at = path.steps[i].at;
    kw_index_node *child = node->is_leaf ? NULL : inner_of(node)->children[at];
    if (child == NULL || child->n == 0) {
      if (child != NULL) node_free(child);
      remove_entry(node, at);
      if (at == 0 && node->n > 0) raise_least(&path, i, node->items[0]);
    } else {
      merge(node, at);
      if (at > 0) merge(node, at - 1);
    }
  }
  collapse_root(index);
  index->n--;
  kw_key_history_free(history);
}

/* Frees a node from its end. Returns false if the work is used up first. */
static bool drop_node(kw_index_node *node, kw_work *work) {
  for (; node->n > 0; node->n--) {
    unsigned at = node->n - 1u;
    if (!node->is_leaf) {
      if (!drop_node(inner_of(node)->children[at], work)) return false;
      continue;
    }
    if (!kw_work_is_left(work)) return false;
    kw_work_spend(work, 0);
    kw_key_history_free(node->items[at]);
  }
  kw_free(node);
  return true;
}

bool kw_index_drop_within(kw_index *index, kw_work *work) {
  if (index->root != NULL && !drop_node(index->root, work)) return false;
  *index = (kw_index){0};
  return true;
}

void kw_index_drop(kw_index *index) {
  kw_work work = kw_work_without_end();
  kw_index_drop_within(index, &work);
}

/* }====== */
