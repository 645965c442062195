/* SPDX-License-Identifier: MIT */
#include "watch/watch_group.c"

#include "probe/checks.h"

static const char *check_watched(const kw_watched_table *table, const kw_watched *watched,
                                 bool is_filed, size_t *watchers) {
  kw_slice bytes = {watched->first->bytes, watched->len};
  if (is_filed && kw_watched_table_find(table, bytes, watched->hash) != watched)
    return "a watched range is not found";
  for (const kw_watcher *w = watched->first; w != NULL; w = w->next, (*watchers)++) {
    if (w->watched != watched) return "a watcher is in another watched range than it knows";
    if (*w->prev != w) return "the back pointer of a watcher is wrong";
  }
  return NULL;
}

static const char *check_node(const kw_watch_group *group, const node *n, size_t *watchers) {
  if (n == NULL) return NULL;
  const char *fault = check_node(group, n->left, watchers);
  if (fault == NULL) fault = check_node(group, n->right, watchers);
  if (fault == NULL) fault = check_watched(&group->stems, &n->watched, false, watchers);
  if (fault != NULL) return fault;
  int lean = (int)height_of(n->left) - (int)height_of(n->right);
  if (lean < -1 || lean > 1) return "a tree of ranges is out of balance";
  node copy = *n;
  update(&copy);
  const node *found = copy.far == &copy ? n : copy.far;
  kw_range range = range_of(n), far = range_of(n->far), far_found = range_of(found);
  if (compare_ends(&far, &far_found) != 0) return "a farthest end is wrong";
  if (copy.key_head != n->key_head || copy.far_head != n->far_head) return "a head is wrong";
  if (stem_of(&range) != n->watched.len) return "a stem is wrong";
  if (n->left != NULL) {
    kw_range other = range_of(n->left);
    if (compare_ranges(&other, &range) >= 0) return "ranges are out of order";
  }
  if (n->right != NULL) {
    kw_range other = range_of(n->right);
    if (compare_ranges(&range, &other) >= 0) return "ranges are out of order";
  }
  return NULL;
}

const char *kw_watch_group_check(const kw_watch_group *group) {
  size_t watchers = 0, trees = 0;
  const char *fault = NULL;
  for (size_t i = 0; i < group->keys.cap && fault == NULL; i++) {
    if (group->keys.tags[i] == 0) continue;
    fault = check_watched(&group->keys, group->keys.slots[i], true, &watchers);
  }
  for (size_t i = 0; i < group->stems.cap && fault == NULL; i++) {
    if (group->stems.tags[i] == 0) continue;
    kw_watched *watched = group->stems.slots[i];
    kw_slice stem = {watched->first->bytes, watched->len};
    if (kw_watched_table_find(&group->stems, stem, watched->hash) != watched)
      return "a stem is not found";
    fault = check_node(group, node_of(watched), &watchers);
  }
  for (size_t i = 0; i < group->n_lengths; i++) trees += group->lengths[i].n;
  if (fault != NULL) return fault;
  if (trees != group->stems.n) return "the lengths in use are wrong";
  return watchers == group->n ? NULL : "the number of watchers is wrong";
}
