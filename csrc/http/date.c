/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <time.h>

#include "http/date.h"

#define LAST INT64_C(253402300799) /* the end of the year 9999 */

void kw_date_write(int64_t seconds, char text[KW_DATE_TEXT]) {
  static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  struct tm t;
  time_t when = (time_t)(seconds < 0 ? 0 : seconds > LAST ? LAST : seconds);
  gmtime_r(&when, &t);
  snprintf(text, KW_DATE_TEXT, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[t.tm_wday],
           (unsigned)t.tm_mday % 100, months[t.tm_mon], (unsigned)(t.tm_year + 1900) % 10000,
           (unsigned)t.tm_hour % 100, (unsigned)t.tm_min % 100, (unsigned)t.tm_sec % 100);
}
