/* SPDX-License-Identifier: MIT
 *
 * load: from the database into memory, when a store is opened. For the files of this folder only.
 *
 * kw_load_state loads the numbers, leases and rows, then kw_store_load (store.h) loads the records, in pieces. Nothing
 * in the database is trusted: everything that the rest of the store relies on is checked here, and fails with
 * KW_ERR_CORRUPT.
 */
#ifndef KW_STORE_LOAD_H
#define KW_STORE_LOAD_H

#include "store/state.h"

/* Loads everything except the records. Leases get their full time from `now` on. Returns KW_OK or KW_ERR_NO_MEMORY; or
 * KW_ERR_CORRUPT, with a sentence in `text`. */
int kw_load_state(kw_store *store, int64_t now, char text[KW_REASON_ROOM]);

/* Loads the rows into a store that has none. Returns KW_OK, KW_ERR_NO_MEMORY, KW_ERR_CORRUPT, or an error of
 * kw_rows_apply for a row that no store could have written. After an error some of the rows may be loaded. */
int kw_load_rows(kw_store *store);

#endif
