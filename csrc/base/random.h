/* SPDX-License-Identifier: MIT
 *
 * random: unpredictable random numbers of the system.
 */
#ifndef KW_BASE_RANDOM_H
#define KW_BASE_RANDOM_H

#include "base/common.h"

/* Draws a random number. Returns false, with an errno, if the system call fails. */
bool kw_random_draw(uint64_t *number);

#endif
