/* SPDX-License-Identifier: MIT
 *
 * restore: makes the directory of a durable store from an image.
 *
 * The image is read twice: once to check all of it, and once to copy it. The copy is made in a new directory beside the
 * target, which is renamed at the end. So a crash or a failure leaves no incomplete target.
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
  bool was_protected;       /* authentication was enabled in the image; it is not in the store */
} kw_restored;

/* Makes `directory`, which must be absent or empty, from the image at `path`. `skip_hash` is that of kw_image_open. On
 * KW_OK the directory is complete and *restored is filled in. After an error `directory` is unchanged. Errors:
 * KW_ERR_NO_MEMORY; KW_ERR_CORRUPT and KW_ERR_STORAGE; KW_ERR_NO_SPACE if the disk is full, or if the rows of the image
 * take more than KW_ROWS_BYTES; KW_ERR_REQUEST_TOO_LARGE if the name of a row is too long. If there is more to say than
 * the error's own text, `text` is set to a sentence; otherwise `text` is unchanged. */
int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_REASON_ROOM]);

#endif
