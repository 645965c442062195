/* SPDX-License-Identifier: MIT
 *
 * restore: makes the directory of a durable store from an image.
 *
 * The image is read twice: once to check all of it, and once to copy it. The copy is made in a directory of its own
 * beside the target, which is renamed at the end. So a crash or a failure leaves no half-made target.
 */
#ifndef KW_STORE_RESTORE_H
#define KW_STORE_RESTORE_H

#include "disk/database.h"

/* What was restored. */
typedef struct kw_restored {
  int64_t revision;
  int64_t compact_revision; /* -1: none */
  int64_t records;          /* number of records, tombstones included */
  int64_t leases;           /* number of leases */
  bool was_protected; /* authentication was enabled in the image; it is not in the restored store */
} kw_restored;

/* Makes `directory`, which must be absent or empty, from the image at `path`. `skip_hash` is that of
 * kw_image_open. On KW_OK the directory is complete and *restored is filled in. On an error `directory` is as it
 * was. Errors: KW_ERR_NO_MEMORY; KW_ERR_CORRUPT and KW_ERR_STORAGE; KW_ERR_NO_SPACE if the disk is full, or if the
 * rows of the image take more than KW_ROWS_BYTES; KW_ERR_REQUEST_TOO_LARGE if the name of a row is too long. Where
 * more can be said than the error's own text, `text` is set to a sentence; otherwise `text` is left alone. */
int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_REASON_ROOM]);

#endif
