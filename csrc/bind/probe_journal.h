/* SPDX-License-Identifier: MIT
 *
 * probe_journal: a journal without a store, for tests in probe builds.
 */
#ifndef KW_BIND_PROBE_JOURNAL_H
#define KW_BIND_PROBE_JOURNAL_H

#include "base/common.h"
#include "face/compat.h"

#ifdef KW_PROBE
/* Pushes a table with these functions. Those that can fail return nil and an error. A change is a list: its kind, and
 * what belongs to it:
 *   { "put", main, sub, tombstone, record }, { "remove", main, sub, tombstone }, { "put_lease", id, ttl },
 *   { "remove_lease", id }, { "put_row", name, bytes }, { "remove_row", name }
 *
 *   open(path, options)    a journal. Options: store_id, epoch, first_bytes, most_bytes
 *   recover(path, options) what the journal has: is_empty, groups, repaired_bits, last_segment_number, sequence,
 *                          revision, compact_revision, compacted_until, alarms and changes. Options: store_id, epoch,
 *                          applied
 *   skip_flush(skip)       while true, journals leave out the flush
 *   repair(bytes, crc)     the bytes and the checksum, with one wrong bit corrected; or nothing
 *
 * A journal has these methods:
 *   append(sequence, changes, meta)   true. `meta` may have revision, compact_revision, compacted_until and alarms
 *   append_beside(first, last, len)   the number of groups that were appended, each with a record of `len` bytes, while
 *                                     another thread releases and prepares; or nil and an error
 *   release(sequence), prepare(), unreleased(), size(), max_frame(), frame_bytes(changes), close() */
void kw_bind_push_probe_journal(lua_State *L);
#endif

#endif
