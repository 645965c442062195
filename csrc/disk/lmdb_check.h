/* SPDX-License-Identifier: MIT
 *
 * lmdb_check: checks all of an LMDB file that LMDB and the store rely on, before LMDB opens it.
 *
 *   meta pages   both are sound, their transactions follow each other, and the newest state has one commit more than
 *                the one before: a wrong bit does not make an older state the newest one
 *   trees        every page and node is within its bounds; keys are in order, and within the bounds of the branch
 *                above; no page is reached twice; pages and entries are as many as LMDB has counted
 *   free pages   no tree uses one of them
 *   tables       every checksum is right; entries are as many as the table meta says
 *
 * What is not in use, such as free pages and the free space in a page, is not checked.
 */
#ifndef KW_DISK_LMDB_CHECK_H
#define KW_DISK_LMDB_CHECK_H

#include "base/common.h"

#define KW_LMDB_HEAD 152 /* bytes of a meta page, at the beginning of each of the first two pages */
#define KW_LMDB_TREE                                                                               \
  48 /* bytes of LMDB's description of a tree; the last 8 are the number of its root */

/* Neither an errno nor an error of LMDB. */
#define KW_LMDB_INCOMPLETE (-1)   /* the file has lost its end */
#define KW_LMDB_OTHER_FORMAT (-2) /* the file has another format than KW_LMDB_FORMAT */

/* Checks the newest state of a file, and has the file read ahead meanwhile. The file is mapped: `map_bytes` may be more
 * than it has. Nobody writes the file meanwhile. Returns
 * 0, MDB_CORRUPTED, KW_LMDB_INCOMPLETE, KW_LMDB_OTHER_FORMAT, or an errno: ENOMEM, or that of fstat. */
int kw_lmdb_check(int fd, const uint8_t *map, size_t map_bytes);

#endif
