/* SPDX-License-Identifier: MIT
 *
 * decimal: doubles as decimal text, exact in both directions, in every locale. The form is that of JSON.
 */
#ifndef KW_BASE_DECIMAL_H
#define KW_BASE_DECIMAL_H

#include "base/common.h"
#include "base/slice.h"

#define KW_DECIMAL_ROOM 40 /* for any double */

/* Converts a number, in the form of JSON, to the nearest double; of two that are equally near, to the even one. Returns
 * false if the number is too large for a double. */
bool kw_decimal_read(kw_slice number, double *x);

/* Writes a finite double with at most 17 digits, from which kw_decimal_read makes the same double. The text has a
 * fraction or an exponent. Returns its length, at most KW_DECIMAL_ROOM. */
size_t kw_decimal_write(double x, char *to);

/* Writes the digits of a whole number, at most 20, so that they end before `end`. Returns the place of the first. */
char *kw_decimal_write_digits(char *end, uint64_t v);

#endif
