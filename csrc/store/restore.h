/* SPDX-License-Identifier: MIT
 *
 * restore: creates the directory of a durable store from an image, the file of a snapshot (disk/image.h).
 *
 * The image is read twice: once to check all of it, and once to copy it. The copy is made in a temporary directory
 * beside the target, and that directory is renamed to the target at the end. So a crash or a failure leaves no
 * incomplete target.
 */
#ifndef KW_STORE_RESTORE_H
#define KW_STORE_RESTORE_H

#include "disk/database.h"

/* A description of the restored data. */
typedef struct kw_restored {
  int64_t revision;
  int64_t compact_revision; /* -1: none */
  int64_t records;          /* number of records, including tombstones */
  int64_t leases;           /* number of leases */
  bool auth_was_enabled;    /* in the image; in the restored store authentication is disabled */
} kw_restored;

/* Creates `directory`, which must be absent or empty, from the image at `path`. With `skip_hash` the SHA-256 of the
 * image is not checked. On KW_OK the directory is complete and *restored is filled in. After an error `directory` is
 * unchanged; only if its parent could not be synced at the end, `directory` is complete, and a crash may remove it.
 * Errors: KW_ERR_NO_MEMORY; KW_ERR_CORRUPT and KW_ERR_STORAGE; KW_ERR_NO_SPACE if the disk is full, or if the rows of
 * the image take more than KW_ROWS_BYTES; KW_ERR_REQUEST_TOO_LARGE if the name of a row is too long. `text` must be
 * empty at the call; it becomes a sentence with the reason if there is a more detailed reason than the code. */
int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_REASON_ROOM]);

#endif
