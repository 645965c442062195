/* SPDX-License-Identifier: MIT */
#include "watch/watch_group.h"

#include "base/hash.h"
#include "base/mem.h"
#include "watch/watched_table.h"

/* A watched range in the tree of its stem. A head is the next eight bytes after the stem, as a big-endian number: it
 * decides most comparisons without a look at the key. */
typedef struct node {
  kw_watched watched;
  struct node *left;
  struct node *right;
  struct node *far;  /* the node, this one or below, whose range ends last */
  uint64_t key_head; /* head of the range's key */
  uint64_t far_head; /* head of the end of `far`; UINT64_MAX if that range is open */
  uint32_t height;
} node;

/* A length of stems that is in use. */
typedef struct stem_length {
  uint32_t len;
  uint32_t n; /* trees with a stem of this length */
} stem_length;

struct kw_watch_group {
  kw_watched_table keys;  /* single keys */
  kw_watched_table stems; /* roots of the trees */
  stem_length *lengths;   /* in rising order */
  size_t n_lengths;
  size_t cap_lengths;
  kw_watched **found; /* result of the last match */
  size_t n_found;
  size_t cap_found;
  size_t most_found; /* limit of the last match */
  bool is_partial;   /* the last match has reached that limit, and there are more ranges */
  size_t n;          /* number of watchers */
  uint64_t seed;
};

kw_watch_group *kw_watch_group_new(uint64_t seed) {
  kw_watch_group *group = kw_alloc_zeroed(sizeof *group);
  if (group != NULL) group->seed = seed;
  return group;
}

void kw_watch_group_free(kw_watch_group *group) {
  assert(group->n == 0);
  kw_watched_table_drop(&group->keys);
  kw_watched_table_drop(&group->stems);
  kw_free(group->lengths);
  kw_free(group->found);
  kw_free(group);
}

size_t kw_watch_group_count(const kw_watch_group *group) {
  return group->n;
}

/* {====== The tree of a stem ====== */

static kw_range range_of(const node *n) {
  return kw_watcher_range(n->watched.first);
}

static node *node_of(kw_watched *watched) {
  return KW_CONTAINER_OF(watched, node, watched);
}

static uint64_t head_of(kw_slice key, size_t skip) {
  uint64_t head = 0;
  memcpy(&head, key.data + skip, kw_min_size(key.len - skip, 8));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  head = __builtin_bswap64(head);
#endif
  return head;
}

/* Compares the ends of two ranges. An open range ends after every other. */
static int compare_ends(const kw_range *a, const kw_range *b) {
  bool a_open = kw_range_is_open(a), b_open = kw_range_is_open(b);
  if (a_open || b_open) return a_open - b_open;
  return kw_slice_compare(a->end, b->end);
}

static int compare_ranges(const kw_range *a, const kw_range *b) {
  int c = kw_slice_compare(a->key, b->key);
  return c != 0 ? c : compare_ends(a, b);
}

static uint32_t height_of(const node *n) {
  return n == NULL ? 0 : n->height;
}

static void take_far(node *n, const node *child) {
  if (child == NULL) return;
  kw_range mine = range_of(n->far), other = range_of(child->far);
  if (compare_ends(&mine, &other) < 0) n->far = child->far;
}

/* Computes the height, the farthest end and the heads of a node from its children. */
static void update(node *n) {
  uint32_t left = height_of(n->left), right = height_of(n->right);
  n->height = 1 + (left > right ? left : right);
  n->far = n;
  take_far(n, n->left);
  take_far(n, n->right);
  kw_range range = range_of(n), far = range_of(n->far);
  n->key_head = head_of(range.key, n->watched.len);
  n->far_head = kw_range_is_open(&far) ? UINT64_MAX : head_of(far.end, n->watched.len);
}

static node *rotate_right(node *n) {
  node *top = n->left;
  n->left = top->right;
  top->right = n;
  update(n);
  update(top);
  return top;
}

static node *rotate_left(node *n) {
  node *top = n->right;
  n->right = top->left;
  top->left = n;
  update(n);
  update(top);
  return top;
}

/* Updates a node whose children have changed, and restores the balance. Returns the root of the subtree. */
static node *balance(node *n) {
  int lean = (int)height_of(n->left) - (int)height_of(n->right);
  if (lean > 1) {
    if (height_of(n->left->left) < height_of(n->left->right)) n->left = rotate_left(n->left);
    return rotate_right(n);
  }
  if (lean < -1) {
    if (height_of(n->right->right) < height_of(n->right->left)) n->right = rotate_right(n->right);
    return rotate_left(n);
  }
  update(n);
  return n;
}

static node *find_range(node *n, const kw_range *range) {
  while (n != NULL) {
    kw_range at = range_of(n);
    int c = compare_ranges(range, &at);
    if (c == 0) return n;
    n = c < 0 ? n->left : n->right;
  }
  return NULL;
}

static node *insert(node *n, node *fresh) {
  if (n == NULL) {
    update(fresh);
    return fresh;
  }
  kw_range at = range_of(n), range = range_of(fresh);
  if (compare_ranges(&range, &at) < 0) {
    n->left = insert(n->left, fresh);
  } else {
    n->right = insert(n->right, fresh);
  }
  return balance(n);
}

/* Takes the leftmost node out of the subtree of `n`, as *first. Returns the new root of the subtree. */
static node *remove_first(node *n, node **first) {
  if (n->left == NULL) {
    *first = n;
    return n->right;
  }
  n->left = remove_first(n->left, first);
  return balance(n);
}

static node *remove_node(node *n, const node *gone) {
  if (n == gone) {
    if (n->right == NULL) return n->left;
    node *next;
    node *right = remove_first(n->right, &next);
    next->left = n->left;
    next->right = right;
    return balance(next);
  }
  kw_range at = range_of(n), range = range_of(gone);
  if (compare_ranges(&range, &at) < 0) {
    n->left = remove_node(n->left, gone);
  } else {
    n->right = remove_node(n->right, gone);
  }
  return balance(n);
}

/* }====== */

/* {====== Stems ====== */

/* Returns the length of the stem: the common prefix of key and end. An open range has an empty stem. */
static size_t stem_of(const kw_range *range) {
  if (kw_range_is_open(range)) return 0;
  size_t n = 0, max = kw_min_size(range->key.len, range->end.len);
  while (n < max && range->key.data[n] == range->end.data[n]) n++;
  return n;
}

/* Returns the position of a length among the lengths in use, or where it would be inserted. */
static size_t length_at(const kw_watch_group *group, uint32_t len) {
  size_t i = 0;
  while (i < group->n_lengths && group->lengths[i].len < len) i++;
  return i;
}

static bool reserve_length(kw_watch_group *group) {
  return kw_reserve(&group->lengths, &group->cap_lengths, group->n_lengths + 1,
                    sizeof *group->lengths);
}

static void use_length(kw_watch_group *group, uint32_t len) {
  size_t at = length_at(group, len);
  if (at == group->n_lengths || group->lengths[at].len != len) {
    memmove(&group->lengths[at + 1], &group->lengths[at],
            (group->n_lengths - at) * sizeof *group->lengths);
    group->lengths[at] = (stem_length){.len = len};
    group->n_lengths++;
  }
  group->lengths[at].n++;
}

static void unuse_length(kw_watch_group *group, uint32_t len) {
  size_t at = length_at(group, len);
  if (--group->lengths[at].n > 0) return;
  group->n_lengths--;
  memmove(&group->lengths[at], &group->lengths[at + 1],
          (group->n_lengths - at) * sizeof *group->lengths);
}

/* Files `root` in place of `old`. Without `old` a tree begins, without `root` a tree ends. */
static void set_root(kw_watch_group *group, node *old, node *root) {
  if (old == root) return;
  if (old == NULL) {
    kw_watched_table_add(&group->stems, &root->watched);
    use_length(group, root->watched.len);
  } else if (root == NULL) {
    kw_watched_table_remove(&group->stems, &old->watched);
    unuse_length(group, old->watched.len);
  } else {
    kw_watched_table_replace(&group->stems, &old->watched, &root->watched);
  }
}

static node *root_of(const kw_watch_group *group, const kw_range *range, size_t stem,
                     uint32_t hash) {
  kw_watched *watched =
      kw_watched_table_find(&group->stems, kw_slice_of(range->key.data, stem), hash);
  return watched == NULL ? NULL : node_of(watched);
}

/* }====== */

static void join(kw_watched *watched, kw_watcher *watcher) {
  watcher->watched = watched;
  watcher->next = watched->first;
  watcher->prev = &watched->first;
  if (watched->first != NULL) watched->first->prev = &watcher->next;
  watched->first = watcher;
}

static bool add_to_key(kw_watch_group *group, kw_watcher *watcher) {
  kw_slice key = kw_watcher_range(watcher).key;
  uint32_t hash = (uint32_t)kw_hash_bytes(key, group->seed);
  kw_watched *watched = kw_watched_table_find(&group->keys, key, hash);
  if (watched == NULL) {
    if (!kw_watched_table_reserve(&group->keys) || (watched = kw_alloc(sizeof *watched)) == NULL)
      return false;
    *watched = (kw_watched){.hash = hash, .len = watcher->key_len};
    kw_watched_table_add(&group->keys, watched);
  }
  join(watched, watcher);
  return true;
}

static bool add_to_range(kw_watch_group *group, kw_watcher *watcher) {
  kw_range range = kw_watcher_range(watcher);
  size_t stem = stem_of(&range);
  uint32_t hash = (uint32_t)kw_hash_bytes(kw_slice_of(range.key.data, stem), group->seed);
  node *root = root_of(group, &range, stem, hash);
  node *n = find_range(root, &range);
  if (n == NULL) {
    if (!kw_watched_table_reserve(&group->stems) || !reserve_length(group)) return false;
    if ((n = kw_alloc_zeroed(sizeof *n)) == NULL) return false;
    n->watched.hash = hash;
    n->watched.len = (uint32_t)stem;
    join(&n->watched, watcher);
    set_root(group, root, insert(root, n));
    return true;
  }
  join(&n->watched, watcher);
  return true;
}

bool kw_watch_group_add(kw_watch_group *group, kw_watcher *watcher) {
  bool ok = watcher->end_len > 0 ? add_to_range(group, watcher) : add_to_key(group, watcher);
  if (ok) group->n++;
  return ok;
}

/* Removes a watched range whose last watcher leaves. That watcher is still linked, because it holds the range's
 * bytes. */
static void remove_watched(kw_watch_group *group, kw_watched *watched, const kw_range *range) {
  if (range->end.len == 0) {
    kw_watched_table_remove(&group->keys, watched);
    kw_free(watched);
    return;
  }
  node *n = node_of(watched);
  node *root = root_of(group, range, watched->len, watched->hash);
  set_root(group, root, remove_node(root, n));
  kw_free(n);
}

void kw_watch_group_remove(kw_watch_group *group, kw_watcher *watcher) {
  kw_watched *watched = watcher->watched;
  kw_range range = kw_watcher_range(watcher);
  if (watched->first == watcher && watcher->next == NULL) {
    remove_watched(group, watched, &range);
  } else {
    *watcher->prev = watcher->next;
    if (watcher->next != NULL) watcher->next->prev = watcher->prev;
  }
  watcher->watched = NULL;
  group->n--;
}

/* {====== Matching ====== */

static bool note(kw_watch_group *group, kw_watched *watched) {
  group->is_partial = group->n_found == group->most_found;
  if (group->is_partial) return false;
  if (!kw_reserve(&group->found, &group->cap_found, group->n_found + 1, sizeof *group->found))
    return false;
  group->found[group->n_found++] = watched;
  return true;
}

/* True if the range of the node, or of one below it, may end after the key. */
static bool may_reach(const node *n, kw_slice key, uint64_t head) {
  if (n->far_head != head) return n->far_head > head;
  kw_range far = range_of(n->far);
  return kw_range_is_open(&far) || kw_slice_compare(key, far.end) < 0;
}

static bool begins_after(const node *n, kw_slice key, uint64_t head) {
  if (n->key_head != head) return n->key_head > head;
  return kw_slice_compare(range_of(n).key, key) > 0;
}

static bool match_tree(kw_watch_group *group, node *n, kw_slice key, uint64_t head) {
  while (n != NULL && may_reach(n, key, head)) {
    if (begins_after(n, key, head)) {
      n = n->left;
      continue;
    }
    kw_range range = range_of(n);
    if (kw_range_reaches(&range, key) && !note(group, &n->watched)) return false;
    if (!match_tree(group, n->left, key, head)) return false;
    n = n->right;
  }
  return true;
}

bool kw_watch_group_match(kw_watch_group *group, kw_slice key, size_t most, kw_match *match) {
  kw_hasher hasher = kw_hasher_begin(key, group->seed);
  bool ok = true;
  group->n_found = 0;
  group->most_found = most;
  group->is_partial = false;
  for (size_t i = 0; i < group->n_lengths && group->lengths[i].len <= key.len && ok; i++) {
    kw_slice stem = {key.data, group->lengths[i].len};
    kw_watched *watched =
        kw_watched_table_find(&group->stems, stem, (uint32_t)kw_hasher_until(&hasher, stem.len));
    if (watched != NULL) ok = match_tree(group, node_of(watched), key, head_of(key, stem.len));
  }
  if (group->keys.n > 0) {
    kw_watched *watched =
        kw_watched_table_find(&group->keys, key, (uint32_t)kw_hasher_until(&hasher, key.len));
    if (watched != NULL) ok = ok && note(group, watched);
  }
  *match =
      (kw_match){.watched = group->found, .n = group->n_found, .is_partial = group->is_partial};
  return ok || group->is_partial;
}

/* }====== */
