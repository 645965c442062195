/* SPDX-License-Identifier: MIT
 *
 * journal_segment: one file of the journal. disk/journal.h shows its layout.
 *
 * The header has:
 *
 *   offset  bytes
 *   0       7      "kwjourn"
 *   7       1      version of the format: 1
 *   8       8      id of the store
 *   16      8      salt
 *   24      8      bytes of the segment
 *   32      4      CRC-32C of the bytes above
 *
 * Every later version will also have the first 8 bytes and the checksum.
 *
 * A segment is named journal-SLOT when all its bytes are on the disk, and journal.new until then. So a segment that is
 * shorter than its header says was truncated.
 */
#ifndef KW_DISK_JOURNAL_SEGMENT_H
#define KW_DISK_JOURNAL_SEGMENT_H

#include "disk/journal_frame.h"

#define KW_JOURNAL_FRAMES KW_JOURNAL_BLOCK /* where the first frame begins */
#define KW_JOURNAL_NAME_ROOM 16            /* bytes of the name of a file, with the final zero */

typedef struct kw_journal_segment {
  int fd;
  int slot;
  int64_t size;
  uint64_t store_id;
  uint64_t salt;
} kw_journal_segment;

/* Writes the name of the file of a slot to `name`, and returns `name`. */
const char *kw_journal_segment_name(int slot, char name[KW_JOURNAL_NAME_ROOM]);

/* Writes the header, which is one block. */
void kw_journal_segment_put_header(uint8_t block[KW_JOURNAL_BLOCK],
                                   const kw_journal_segment *segment);

/* Makes the file of a segment, durably. The caller has set slot, size and store_id; the function sets the rest, and
 * replaces a file that has the slot. Returns KW_OK; or KW_ERR_NO_MEMORY, KW_ERR_STORAGE, or KW_ERR_NO_SPACE if the file
 * system has no space for two such segments. After an error there is no new file. */
int kw_journal_segment_make(const char *directory, kw_journal_segment *segment);

/* Opens the file of a slot, and reads its header. `for_reading`: the file will not be written. Returns KW_OK;
 * KW_ERR_NOT_FOUND if there is no such file; KW_ERR_STORAGE or KW_ERR_NO_SPACE if it cannot be read, or KW_ERR_CORRUPT,
 * with the reason in `why`. After an error nothing is open. */
int kw_journal_segment_open(const char *directory, int slot, bool for_reading,
                            kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]);

/* Closes the file, if it is open. */
void kw_journal_segment_close(kw_journal_segment *segment);

/* Writes bytes at an offset, and flushes them. `len` and `at` are multiples of a block. If `bytes` is aligned to a
 * block, too, the write bypasses the page cache. Returns 0, or an errno: it is then unknown what is durable. */
int kw_journal_segment_write(const kw_journal_segment *segment, const void *bytes, size_t len,
                             int64_t at);

/* Reads the block at an offset. Returns false if that fails. May make later writes use the page cache. */
bool kw_journal_segment_read(const kw_journal_segment *segment, uint8_t block[KW_JOURNAL_BLOCK],
                             int64_t at);

/* Returns the size of the file of a slot, at most KW_JOURNAL_MAX_BYTES; 0 if there is no file. */
int64_t kw_journal_segment_bytes_of(const char *directory, int slot);

/* Removes the file of a slot. A crash may bring it back. */
void kw_journal_segment_remove(const char *directory, int slot);

/* Removes the file of an unfinished segment. */
void kw_journal_segment_remove_unfinished(const char *directory);

#endif
