/* SPDX-License-Identifier: MIT
 *
 * restore: an image becomes the directory of a durable store.
 */
#ifndef KW_STORE_RESTORE_H
#define KW_STORE_RESTORE_H

#include "store/database.h"

typedef struct kw_restored {
  int64_t revision;
  int64_t compact_revision; /* -1: none */
  int64_t records;
  int64_t leases;
  bool was_protected; /* authentication was enabled, which it is no more */
} kw_restored;

/* Makes `directory`, which must be absent or empty, of the image at `path`. It is there when all of it is there, and
 * durable; else nothing is. KW_ERR_NO_MEMORY; KW_ERR_CORRUPT, KW_ERR_STORAGE, KW_ERR_NO_SPACE, with a sentence in
 * `text`. */
int kw_restore(const char *path, const char *directory, bool skip_hash, kw_restored *restored,
               char text[KW_DISK_TEXT]);

#endif
