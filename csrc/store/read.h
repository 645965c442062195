/* SPDX-License-Identifier: MIT
 *
 * read: ranges of keys at any revision that is still known. For the files of this folder only.
 */
#ifndef KW_STORE_READ_H
#define KW_STORE_READ_H

#include "store/state.h"

/* Whether `rev` can be read when `current` is the newest revision: KW_OK, or why not. */
int kw_read_check(const kw_store *store, int64_t rev, int64_t current);

/* Answers a range when `current` is the newest revision that may be seen. */
int kw_read_range(const kw_store *store, const kw_range_op *op, int64_t current, kw_arena *arena,
                  kw_reply *reply);

/* The newest record of a key, or NULL if the key is not there. */
const kw_blob *kw_read_newest(const kw_store *store, const kw_key_history *history);

#endif
