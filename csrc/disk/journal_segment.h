/* SPDX-License-Identifier: MIT
 *
 * journal_segment: one file of the journal. disk/journal.h draws it.
 *
 * The header has:
 *
 *   offset  bytes
 *   0       7      "kwjourn"
 *   7       1      version of the format: 1
 *   8       8      id of the store
 *   16      8      salt
 *   24      8      bytes of the segment
 *   32      4      CRC-32C of the bytes before
 *
 * Every later version has the first 8 bytes and the checksum, too.
 *
 * A segment gets the name journal-SLOT when all its bytes are on the disk; until then it is journal.new. So a segment
 * that is shorter than its header says has been cut off.
 */
#ifndef KW_DISK_JOURNAL_SEGMENT_H
#define KW_DISK_JOURNAL_SEGMENT_H

#include "disk/journal_frame.h"

#define KW_JOURNAL_FRAMES KW_JOURNAL_BLOCK /* where the first frame begins */
#define KW_JOURNAL_NAME_ROOM 16            /* bytes of the name of a file, with the 0 */

typedef struct kw_journal_segment {
  int fd;
  int slot;
  int64_t size;
  uint64_t store_id;
  uint64_t salt;
} kw_journal_segment;

/* Writes the name of the file of a slot to `name`, and returns `name`. */
const char *kw_journal_segment_name(int slot, char name[KW_JOURNAL_NAME_ROOM]);

/* Writes the header: a block. */
void kw_journal_segment_put_header(uint8_t block[KW_JOURNAL_BLOCK],
                                   const kw_journal_segment *segment);

/* Makes the file of a segment, durably. The caller has set slot, size and store_id; sets the rest. A
 * file that has the slot is replaced. Returns KW_OK; or KW_ERR_NO_MEMORY, KW_ERR_STORAGE, or KW_ERR_NO_SPACE if the
 * file system has less room than for two such segments, and then there is no new file. */
int kw_journal_segment_make(const char *directory, kw_journal_segment *segment);

/* Opens the file of a slot, for reading alone or for both, and reads its header. Returns KW_OK; KW_ERR_NOT_FOUND if
 * there is no such file; KW_ERR_STORAGE if it cannot be read; or KW_ERR_CORRUPT. After the last two `why` is a
 * sentence, and nothing is open. */
int kw_journal_segment_open(const char *directory, int slot, bool for_reading,
                            kw_journal_segment *segment, char why[KW_JOURNAL_WHY_ROOM]);

/* Closes the file, if it is open. */
void kw_journal_segment_close(kw_journal_segment *segment);

/* Writes bytes at an offset, and flushes them. Where `bytes` is aligned to a block, as `len` and `at` are, the write
 * goes past the page cache. Returns 0, or an errno: it is then unknown what is durable. */
int kw_journal_segment_write(const kw_journal_segment *segment, const void *bytes, size_t len,
                             int64_t at);

/* Reads the block at an offset. Returns false if that fails. */
bool kw_journal_segment_read(const kw_journal_segment *segment, uint8_t block[KW_JOURNAL_BLOCK],
                             int64_t at);

/* Returns the bytes of the file of a slot, KW_JOURNAL_MAX_BYTES at most; 0 if there is none. */
int64_t kw_journal_segment_bytes_of(const char *directory, int slot);

/* Removes the file of a slot. A crash may bring it back. */
void kw_journal_segment_remove(const char *directory, int slot);

/* Removes the file of a segment that was not finished. */
void kw_journal_segment_remove_unfinished(const char *directory);

#endif
