/* SPDX-License-Identifier: MIT
 *
 * read: ranges of keys at any revision that is still known. For the files of this folder only.
 */
#ifndef KW_STORE_READ_H
#define KW_STORE_READ_H

#include "store/state.h"

/* Returns KW_OK if `rev` can be read when `current` is the newest revision, else KW_ERR_FUTURE_REVISION or
 * KW_ERR_COMPACTED. */
int kw_read_check(const kw_store *store, int64_t rev, int64_t current);

/* Answers a range when `current` is the newest revision that may be seen. Returns KW_OK, KW_ERR_FUTURE_REVISION,
 * KW_ERR_COMPACTED or KW_ERR_NO_MEMORY. A record that cannot be read is empty in the reply: the caller looks at
 * kw_log_failure. */
int kw_read_range(const kw_store *store, const kw_range_op *op, int64_t current, kw_arena *arena,
                  kw_reply *reply);

/* Returns the newest record of a key, or NULL if the key does not exist. `history` may be NULL. The record is
 * borrowed, and may be empty, see kw_log_read. */
const kw_blob *kw_read_newest(const kw_store *store, const kw_key_history *history);

#endif
