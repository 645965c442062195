/* SPDX-License-Identifier: MIT
 *
 * journal_frame: the bytes of one commit group in the journal.
 *
 *   offset  bytes
 *   0       4      CRC-32C of the rest of the frame header
 *   4       4      "kwjf"
 *   8       8      salt of the segment
 *   16      8      epoch
 *   24      8      sequence of the group
 *   32      8      revision               } the numbers of the group
 *   40      8      compact_revision       }
 *   48      8      compacted_until        }
 *   56      8      alarms                 }
 *   64      8      bytes of the payload
 *   72      8      digest of the payload
 *   80      4      CRC-32C of the payload
 *   84      4      checksum of the header of the frame before; 0 in the first frame of an epoch
 *   88      4      number of changes
 *   92      4      0
 *   96             payload: the changes; then zeros up to a whole number of blocks
 *
 * A change is its kind, 1 byte, and
 *
 *   put a record      1 byte tombstone, 8 main, 4 sub, 4 length, the record
 *   remove a record   1 byte tombstone, 8 main, 4 sub
 *   put a lease       8 id, 8 ttl
 *   remove a lease    8 id
 *   put a row         4 length, the name, 4 length, the bytes
 *   remove a row      4 length, the name
 *
 * A checksum can also correct one wrong bit. But some wrong bit is found for a torn payload of 64 MiB, too, with a
 * chance of one in eight. So the digest, which is independent of the checksum, has to agree after a correction.
 */
#ifndef KW_DISK_JOURNAL_FRAME_H
#define KW_DISK_JOURNAL_FRAME_H

#include "disk/journal.h"

#define KW_JOURNAL_BLOCK 4096
#define KW_JOURNAL_FRAME_HEADER 96

/* The header of a frame. */
typedef struct kw_journal_frame {
  uint32_t crc; /* of this header */
  uint64_t salt;
  uint64_t epoch;
  kw_commit_meta meta;
  uint64_t payload_bytes;
  uint64_t payload_digest;
  uint32_t payload_crc;
  uint32_t before; /* `crc` of the frame before */
  uint32_t changes;
} kw_journal_frame;

/* Returns the bytes of a frame with a payload of this size: whole blocks. */
size_t kw_journal_frame_size(uint64_t payload_bytes);

/* Writes the frame of a group to `to`, which has room for kw_journal_frame_bytes. `frame` gives salt, epoch and
 * `before`; the other fields are set. */
void kw_journal_frame_encode(uint8_t *to, const kw_commit_group *group, kw_journal_frame *frame);

/* Writes the header before a payload that is in its place, and the zeros behind it. `frame` gives salt, epoch,
 * `before`, meta, payload_bytes and changes; the checksums are set. */
void kw_journal_frame_seal(uint8_t *to, kw_journal_frame *frame);

/* Reads a frame header with this salt and epoch from a block of a segment, of which `room` bytes are left. Corrects one
 * wrong bit in place, and adds it to *repaired_bits. Returns false if the block is not the beginning of a frame that
 * fits. */
bool kw_journal_frame_read(uint8_t *block, size_t room, uint64_t salt, uint64_t epoch,
                           kw_journal_frame *frame, int64_t *repaired_bits);

/* True if the payload behind a frame header is whole. Corrects one wrong bit in place, and adds it to
 * *repaired_bits. */
bool kw_journal_frame_check(uint8_t *block, const kw_journal_frame *frame, int64_t *repaired_bits);

/* Adds the changes of a frame, whose payload is whole, to result->group. The revisions of records that are put have to
 * rise: *newest is the last one so far. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT if the payload is
 * malformed. */
int kw_journal_frame_decode(const uint8_t *block, const kw_journal_frame *frame,
                            kw_journal_recovered *result, kw_revision *newest);

#endif
