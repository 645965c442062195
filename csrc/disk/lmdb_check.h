/* SPDX-License-Identifier: MIT
 *
 * lmdb_check: checks, before LMDB opens a file, everything in it that LMDB and the store rely on.
 *
 *   meta pages   both are sound, their transactions are consecutive, and the newest state has one commit more than
 *                the state before it: otherwise a wrong bit could make an older state the newest one
 *   trees        every page and node is within its bounds; keys are in order, and within the bounds of the branch
 *                above; no page is reached twice; the numbers of pages and entries are those that LMDB has counted
 *   free pages   no tree uses one of them
 *   tables       every checksum is right; the numbers of entries are those in the table meta
 *
 * Unused bytes, such as free pages and the free space in a page, are not checked.
 */
#ifndef KW_DISK_LMDB_CHECK_H
#define KW_DISK_LMDB_CHECK_H

#include "base/common.h"

#define KW_LMDB_HEAD 152 /* bytes of a meta page, at the beginning of each of the first two pages */
/* Bytes of LMDB's description of a tree; the last 8 are the page number of its root. */
#define KW_LMDB_TREE 48

/* Results that are neither an errno nor an error of LMDB. */
#define KW_LMDB_INCOMPLETE (-1)   /* the file is truncated */
#define KW_LMDB_OTHER_FORMAT (-2) /* the format of the file is not KW_LMDB_FORMAT */

/* Checks the newest state of a file, and makes the system read ahead. The file is mapped; `map_bytes` may be larger
 * than the file. The file must not be written during the check. Returns 0, MDB_CORRUPTED, KW_LMDB_INCOMPLETE,
 * KW_LMDB_OTHER_FORMAT, or an errno: ENOMEM, or that of fstat. */
int kw_lmdb_check(int fd, const uint8_t *map, size_t map_bytes);

#endif
