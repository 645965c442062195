/* SPDX-License-Identifier: MIT
 *
 * date: writes a time in the format of the field `date` (RFC 9110 §5.6.7): Sun, 06 Nov 1994 08:49:37 GMT.
 */
#ifndef KW_HTTP_DATE_H
#define KW_HTTP_DATE_H

#include "base/common.h"

#define KW_DATE_TEXT 30 /* bytes, with the 0 at the end */

/* Writes the time, in seconds since 1970, of the years 1970 to 9999. */
void kw_date_write(int64_t seconds, char text[KW_DATE_TEXT]);

#endif
