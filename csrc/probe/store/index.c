/* SPDX-License-Identifier: MIT */
#include "store/index.c"

#include "probe/checks.h"

/* {====== Checking ====== */

typedef struct checker {
  const kw_key_history *last; /* the key before, in order */
  const kw_index_leaf *leaf;  /* the leaf before */
  size_t n;
  const char *fault;
} checker;

static void expect(checker *c, bool holds, const char *text) {
  if (!holds && c->fault == NULL) c->fault = text;
}

static void check_key(checker *c, const kw_index_node *node, unsigned at) {
  const kw_key_history *history = node->items[at];
  kw_slice key = kw_key_history_key(history);
  expect(c, key.len >= node->prefix_len && memcmp(key.data, node->prefix, node->prefix_len) == 0,
         "a key does not have its node's prefix");
  expect(c, node->heads[at] == head_of(key, node->prefix_len), "a head is not its key's");
  if (!node->is_leaf) return;
  expect(c, c->last == NULL || kw_slice_compare(kw_key_history_key(c->last), key) < 0,
         "keys are out of order");
  expect(c, (leaf_of(node)->live >> at & 1) == kw_key_history_is_live(history),
         "a leaf's mask is wrong");
  expect(c, !kw_key_history_is_empty(history), "a history without changes");
  c->last = history;
  c->n++;
}

static int64_t check_node(checker *c, const kw_index_node *node, unsigned depth) {
  expect(c, node->n > 0 && depth < KW_INDEX_MAX_DEPTH, "an empty node, or too many levels");
  for (unsigned i = 0; i < node->n; i++) {
    check_key(c, node, i);
    if (node->is_leaf) continue;
    inner *in = inner_of(node);
    expect(c, node->items[i] == in->children[i]->items[0],
           "an entry has not the least key below it");
    expect(c, in->live[i] == check_node(c, in->children[i], depth + 1), "a live count is wrong");
  }
  if (node->is_leaf) {
    expect(c, leaf_of(node)->prev == c->leaf, "the chain of leaves is broken");
    c->leaf = leaf_of(node);
  }
  return live_below(node, node->n);
}

const char *kw_index_check(const kw_index *index) {
  checker c = {0};
  if (index->n > 0)
    expect(&c, check_node(&c, index->root, 0) == index->live, "the live count is wrong");
  expect(&c, c.n == index->n, "the number of keys is wrong");
  expect(&c, c.leaf == NULL || c.leaf->next == NULL, "the chain of leaves does not end");
  return c.fault;
}

/* }====== */
