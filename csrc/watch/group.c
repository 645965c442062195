/* SPDX-License-Identifier: MIT */
#include "watch/group.h"

#include "base/mem.h"

#define FIRST_CAP 16
#define PREFIX_MAX 64

/* A slot of a range is a node of the tree. */
typedef struct range_slot {
  kw_slot slot;
  struct range_slot *left;
  struct range_slot *right;
  struct range_slot *far; /* the node, here or below, whose range ends last */
  uint64_t key_head;
  uint64_t far_head; /* of the end of `far`; UINT64_MAX where it has no end */
} range_slot;

struct kw_group {
  kw_slot **table; /* single keys, by hash, with linear probing */
  size_t n_keys;
  size_t cap; /* a power of two, or 0 */
  range_slot *root;
  size_t n; /* watchers */
  uint64_t seed;
  size_t prefix_len; /* what the keys of all ranges begin with, as far as it is known */
  uint8_t prefix[PREFIX_MAX];
};

kw_group *kw_group_new(uint64_t seed) {
  kw_group *group = kw_alloc_zeroed(sizeof *group);
  if (group != NULL) group->seed = seed;
  return group;
}

void kw_group_free(kw_group *group) {
  assert(group->n == 0);
  kw_free(group->table);
  kw_free(group);
}

size_t kw_group_count(const kw_group *group) {
  return group->n;
}

static kw_range range_of(const kw_slot *slot) {
  return kw_watcher_range(slot->watchers.first);
}

/* {====== Single keys ====== */

static uint64_t mix(uint64_t h) {
  h *= UINT64_C(0x9e3779b97f4a7c15);
  return h ^ h >> 32;
}

/* Seeded, since keys are chosen by strangers. */
static uint32_t hash_of(const kw_group *group, kw_slice key) {
  uint64_t h = group->seed ^ key.len;
  while (key.len >= 8) {
    uint64_t word;
    memcpy(&word, key.data, 8);
    h = mix(h ^ word);
    key = kw_slice_of(key.data + 8, key.len - 8);
  }
  uint64_t rest = 0;
  memcpy(&rest, key.data, key.len);
  return (uint32_t)mix(mix(h ^ rest));
}

/* The place of a key in the table, or the free one where it would go. */
static size_t place_of(const kw_group *group, kw_slice key, uint32_t hash) {
  size_t i = hash & (group->cap - 1);
  for (; group->table[i] != NULL; i = (i + 1) & (group->cap - 1)) {
    if (group->table[i]->hash == hash && kw_slice_equal(range_of(group->table[i]).key, key)) break;
  }
  return i;
}

static bool reserve_key(kw_group *group) {
  if ((group->n_keys + 1) * 4 <= group->cap * 3) return true;
  size_t cap = group->cap == 0 ? FIRST_CAP : group->cap * 2;
  kw_slot **table = kw_alloc_zeroed(cap * sizeof *table);
  if (table == NULL) return false;
  for (size_t i = 0; i < group->cap; i++) {
    if (group->table[i] == NULL) continue;
    size_t at = group->table[i]->hash & (cap - 1);
    while (table[at] != NULL) at = (at + 1) & (cap - 1);
    table[at] = group->table[i];
  }
  kw_free(group->table);
  group->table = table;
  group->cap = cap;
  return true;
}

static kw_slot *key_slot(kw_group *group, kw_slice key) {
  uint32_t hash = hash_of(group, key);
  if (!reserve_key(group)) return NULL;
  size_t at = place_of(group, key, hash);
  if (group->table[at] != NULL) return group->table[at];
  kw_slot *slot = kw_alloc_zeroed(sizeof *slot);
  if (slot == NULL) return NULL;
  slot->hash = hash;
  group->table[at] = slot;
  group->n_keys++;
  return slot;
}

/* Takes a slot out of the table, and moves back what stood behind it only because of it. */
static void remove_key_slot(kw_group *group, kw_slot *slot) {
  const size_t mask = group->cap - 1;
  size_t hole = slot->hash & mask;
  while (group->table[hole] != slot) hole = (hole + 1) & mask;
  for (size_t i = (hole + 1) & mask; group->table[i] != NULL; i = (i + 1) & mask) {
    size_t want = group->table[i]->hash & mask;
    if (((i - want) & mask) >= ((i - hole) & mask)) {
      group->table[hole] = group->table[i];
      hole = i;
    }
  }
  group->table[hole] = NULL;
  group->n_keys--;
  kw_free(slot);
}

/* }====== */

/* {====== Ranges ====== */

static kw_range node_range(const range_slot *node) {
  return range_of(&node->slot);
}

/* The eight bytes after the common prefix, as a number in the order of bytes. Without the prefix, a key is below or
 * above all that have it. */
static uint64_t head_of(const kw_group *group, kw_slice key) {
  size_t common = kw_min_size(key.len, group->prefix_len);
  int c = memcmp(key.data, group->prefix, common);
  if (c != 0) return c < 0 ? 0 : UINT64_MAX;
  if (key.len < group->prefix_len) return 0;
  uint64_t head = 0;
  memcpy(&head, key.data + common, kw_min_size(key.len - common, 8));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  head = __builtin_bswap64(head);
#endif
  return head;
}

/* Ends in order; that of an open range is after all others. */
static int compare_ends(const kw_range *a, const kw_range *b) {
  bool a_open = kw_range_is_open(a), b_open = kw_range_is_open(b);
  if (a_open || b_open) return a_open - b_open;
  return kw_slice_compare(a->end, b->end);
}

static int compare_ranges(const kw_range *a, const kw_range *b) {
  int c = kw_slice_compare(a->key, b->key);
  return c != 0 ? c : compare_ends(a, b);
}

static uint32_t height_of(const range_slot *node) {
  return node == NULL ? 0 : node->slot.height;
}

static void take_far(range_slot *node, const range_slot *child) {
  if (child == NULL) return;
  kw_range mine = node_range(node->far), other = node_range(child->far);
  if (compare_ends(&mine, &other) < 0) node->far = child->far;
}

/* Works out what a node knows of those below it. */
static void update(const kw_group *group, range_slot *node) {
  uint32_t left = height_of(node->left), right = height_of(node->right);
  node->slot.height = 1 + (left > right ? left : right);
  node->far = node;
  take_far(node, node->left);
  take_far(node, node->right);
  kw_range range = node_range(node), far = node_range(node->far);
  node->key_head = head_of(group, range.key);
  node->far_head = kw_range_is_open(&far) ? UINT64_MAX : head_of(group, far.end);
}

static range_slot *rotate_right(const kw_group *group, range_slot *node) {
  range_slot *top = node->left;
  node->left = top->right;
  top->right = node;
  update(group, node);
  update(group, top);
  return top;
}

static range_slot *rotate_left(const kw_group *group, range_slot *node) {
  range_slot *top = node->right;
  node->right = top->left;
  top->left = node;
  update(group, node);
  update(group, top);
  return top;
}

/* Updates a node whose children have changed, and restores the balance; returns what stands in its place. */
static range_slot *balance(const kw_group *group, range_slot *node) {
  int lean = (int)height_of(node->left) - (int)height_of(node->right);
  if (lean > 1) {
    if (height_of(node->left->left) < height_of(node->left->right)) {
      node->left = rotate_left(group, node->left);
    }
    return rotate_right(group, node);
  }
  if (lean < -1) {
    if (height_of(node->right->right) < height_of(node->right->left)) {
      node->right = rotate_right(group, node->right);
    }
    return rotate_left(group, node);
  }
  update(group, node);
  return node;
}

static range_slot *find_range(const kw_group *group, const kw_range *range) {
  range_slot *node = group->root;
  while (node != NULL) {
    kw_range at = node_range(node);
    int c = compare_ranges(range, &at);
    if (c == 0) return node;
    node = c < 0 ? node->left : node->right;
  }
  return NULL;
}

static range_slot *insert(const kw_group *group, range_slot *node, range_slot *fresh) {
  if (node == NULL) {
    update(group, fresh);
    return fresh;
  }
  kw_range at = node_range(node), range = node_range(fresh);
  if (compare_ranges(&range, &at) < 0) {
    node->left = insert(group, node->left, fresh);
  } else {
    node->right = insert(group, node->right, fresh);
  }
  return balance(group, node);
}

/* Takes the first node below `node` out, as *first; returns what stands in place of `node`. */
static range_slot *remove_first(const kw_group *group, range_slot *node, range_slot **first) {
  if (node->left == NULL) {
    *first = node;
    return node->right;
  }
  node->left = remove_first(group, node->left, first);
  return balance(group, node);
}

static range_slot *remove_node(const kw_group *group, range_slot *node, const range_slot *gone) {
  if (node == gone) {
    if (node->right == NULL) return node->left;
    range_slot *next;
    range_slot *right = remove_first(group, node->right, &next);
    next->left = node->left;
    next->right = right;
    return balance(group, next);
  }
  kw_range at = node_range(node), range = node_range(gone);
  if (compare_ranges(&range, &at) < 0) {
    node->left = remove_node(group, node->left, gone);
  } else {
    node->right = remove_node(group, node->right, gone);
  }
  return balance(group, node);
}

static void update_heads(const kw_group *group, range_slot *node) {
  if (node == NULL) return;
  update_heads(group, node->left);
  update_heads(group, node->right);
  update(group, node);
}

/* Shortens the common prefix until `key` has it; begins anew with the first range. */
static void admit_prefix(kw_group *group, kw_slice key) {
  if (group->root == NULL) {
    group->prefix_len = kw_min_size(key.len, PREFIX_MAX);
    memcpy(group->prefix, key.data, group->prefix_len);
    return;
  }
  size_t n = 0, max = kw_min_size(key.len, group->prefix_len);
  while (n < max && key.data[n] == group->prefix[n]) n++;
  if (n == group->prefix_len) return;
  group->prefix_len = n;
  update_heads(group, group->root);
}

/* Adds the watcher to the slot of its range, which is made if need be. */
static bool add_to_range(kw_group *group, kw_watcher *watcher) {
  kw_range range = kw_watcher_range(watcher);
  range_slot *node = find_range(group, &range);
  bool is_new = node == NULL;
  if (is_new && (node = kw_alloc_zeroed(sizeof *node)) == NULL) return false;
  kw_watcher_list_add(&node->slot.watchers, watcher);
  watcher->slot = &node->slot;
  if (!is_new) return true;
  admit_prefix(group, range.key);
  group->root = insert(group, group->root, node);
  return true;
}

/* Whether anything below a node, or itself, may end after the key. */
static bool may_reach(const range_slot *node, kw_slice key, uint64_t head) {
  if (node->far_head != head) return node->far_head > head;
  kw_range far = node_range(node->far);
  return kw_range_is_open(&far) || kw_slice_compare(key, far.end) < 0;
}

static bool begins_after(const range_slot *node, kw_slice key, uint64_t head) {
  if (node->key_head != head) return node->key_head > head;
  return kw_slice_compare(node_range(node).key, key) > 0;
}

static void match_ranges(range_slot *node, kw_slice key, uint64_t head, kw_slot **found) {
  while (node != NULL && may_reach(node, key, head)) {
    if (begins_after(node, key, head)) {
      node = node->left;
      continue;
    }
    kw_range range = node_range(node);
    if (kw_range_reaches(&range, key)) {
      node->slot.next_match = *found;
      *found = &node->slot;
    }
    match_ranges(node->left, key, head, found);
    node = node->right;
  }
}

/* }====== */

bool kw_group_add(kw_group *group, kw_watcher *watcher) {
  if (watcher->end_len > 0) {
    if (!add_to_range(group, watcher)) return false;
  } else {
    kw_slot *slot = key_slot(group, kw_watcher_range(watcher).key);
    if (slot == NULL) return false;
    kw_watcher_list_add(&slot->watchers, watcher);
    watcher->slot = slot;
  }
  group->n++;
  return true;
}

void kw_group_remove(kw_group *group, kw_watcher *watcher) {
  kw_slot *slot = watcher->slot;
  bool is_last = slot->watchers.first == watcher && watcher->next == NULL;
  if (is_last && slot->height > 0) {
    range_slot *node = KW_CONTAINER_OF(slot, range_slot, slot);
    group->root =
        remove_node(group, group->root, node); /* needs its range, which the watcher has */
    kw_free(node);
  } else if (is_last) {
    remove_key_slot(group, slot);
  } else {
    kw_watcher_list_remove(&slot->watchers, watcher);
  }
  watcher->slot = NULL;
  group->n--;
}

kw_slot *kw_group_match(kw_group *group, kw_slice key) {
  kw_slot *found = NULL;
  if (group->n_keys > 0) {
    found = group->table[place_of(group, key, hash_of(group, key))];
    if (found != NULL) found->next_match = NULL;
  }
  if (group->root != NULL) match_ranges(group->root, key, head_of(group, key), &found);
  return found;
}

#ifdef KW_PROBE

static const char *check_node(const kw_group *group, const range_slot *node, size_t *watchers) {
  if (node == NULL) return NULL;
  const char *fault = check_node(group, node->left, watchers);
  if (fault == NULL) fault = check_node(group, node->right, watchers);
  if (fault != NULL) return fault;
  int lean = (int)height_of(node->left) - (int)height_of(node->right);
  if (lean < -1 || lean > 1) return "the tree of ranges is out of balance";
  range_slot copy = *node;
  const kw_watcher *w = node->slot.watchers.first;
  if (w == NULL) return "a slot without watchers";
  for (; w != NULL; w = w->next, (*watchers)++) {
    if (w->slot != &node->slot) return "a watcher in another slot than it thinks";
  }
  copy.slot.watchers = node->slot.watchers;
  update(group, &copy);
  kw_range far = node_range(node->far), found = node_range(copy.far == &copy ? node : copy.far);
  if (compare_ends(&far, &found) != 0) return "a farthest end is wrong";
  if (copy.key_head != node->key_head || copy.far_head != node->far_head) return "a head is wrong";
  kw_range range = node_range(node);
  for (int side = 0; side < 2; side++) {
    const range_slot *child = side == 0 ? node->left : node->right;
    if (child == NULL) continue;
    kw_range other = node_range(child);
    if ((compare_ranges(&other, &range) < 0) != (side == 0)) return "ranges are out of order";
  }
  return NULL;
}

const char *kw_group_check(const kw_group *group) {
  size_t watchers = 0, keys = 0;
  const char *fault = check_node(group, group->root, &watchers);
  if (fault != NULL) return fault;
  for (size_t i = 0; i < group->cap; i++) {
    const kw_slot *slot = group->table[i];
    if (slot == NULL) continue;
    kw_slice key = range_of(slot).key;
    if (group->table[place_of(group, key, hash_of(group, key))] != slot)
      return "a key is not found";
    for (const kw_watcher *w = slot->watchers.first; w != NULL; w = w->next) watchers++;
    keys++;
  }
  if (keys != group->n_keys) return "the number of keys is wrong";
  return watchers == group->n ? NULL : "the number of watchers is wrong";
}

#endif
