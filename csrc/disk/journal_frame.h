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
 *   64      4      bytes of the payload
 *   68      4      CRC-32C of the payload
 *   72      4      checksum of the previous frame's header; 0 in the first frame of an epoch
 *   76      4      number of changes
 *   80             payload: the changes; then zeros up to a whole number of blocks
 *
 * A change is 1 byte, its kind, and then
 *
 *   put a record      1 byte tombstone, 8 main, 4 sub, 4 length, the record
 *   remove a record   1 byte tombstone, 8 main, 4 sub
 *   put a lease       8 id, 8 ttl
 *   remove a lease    8 id
 *   put a row         4 length, the name, 4 length, the bytes
 *   remove a row      4 length, the name
 */
#ifndef KW_DISK_JOURNAL_FRAME_H
#define KW_DISK_JOURNAL_FRAME_H

#include "disk/journal.h"

#define KW_JOURNAL_BLOCK 4096
#define KW_JOURNAL_FRAME_HEADER 80

/* The header of a frame. */
typedef struct kw_journal_frame {
  uint32_t crc; /* of this header */
  uint64_t salt;
  uint64_t epoch;
  kw_commit_meta meta;
  uint32_t payload_bytes;
  uint32_t payload_crc;
  uint32_t before; /* `crc` of the previous frame */
  uint32_t changes;
} kw_journal_frame;

/* Returns the bytes of a frame with a payload of this size: whole blocks. */
size_t kw_journal_frame_size(size_t payload_bytes);

/* Returns the bytes of the frame of a group. */
size_t kw_journal_frame_bytes(const kw_commit_group *group);

/* Writes the frame of a group to `to`, a buffer of kw_journal_frame_bytes. The caller has set salt, epoch and `before`
 * of `frame`; the function sets the other fields. */
void kw_journal_frame_encode(uint8_t *to, const kw_commit_group *group, kw_journal_frame *frame);

/* Writes the header of a frame whose payload is already in its place, and the zeros after the payload. The caller has
 * set salt, epoch, `before`, meta, payload_bytes and changes of `frame`; the function sets the checksums. */
void kw_journal_frame_seal(uint8_t *to, kw_journal_frame *frame);

/* Reads a frame header with this salt, of a frame of at most `room` bytes. Returns false if there is none. */
bool kw_journal_frame_read(const uint8_t header[KW_JOURNAL_FRAME_HEADER], size_t room,
                           uint64_t salt, kw_journal_frame *frame);

/* True if the payload of a frame is undamaged. */
bool kw_journal_frame_check(const uint8_t *payload, const kw_journal_frame *frame);

/* Adds the changes of a frame, whose payload is undamaged, to result->group. The revisions of the records that are put
 * must rise: *newest is the last one so far. Returns KW_OK, KW_ERR_NO_MEMORY, or KW_ERR_CORRUPT if the payload is
 * malformed; some of the changes may then have been added. */
int kw_journal_frame_decode(const uint8_t *payload, const kw_journal_frame *frame,
                            kw_journal_recovered *result, kw_revision *newest);

#endif
