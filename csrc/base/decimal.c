/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>

#include "base/decimal.h"

/* {====== Reading ====== */

#define EXACT_MAX (UINT64_C(1) << 53) /* a double represents every whole number up to here */
#define EXACT_POWER 22                /* 10 to this power is exact in a double, and no higher one */

/* Digits that decide to which double a number is rounded: no number halfway between two doubles has more. */
#define MOST_DIGITS 768
#define MOST_EXPONENT 100000 /* beyond it every number is 0 or too large, whatever its digits are */

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* A number is digits * 10^exponent. */
typedef struct decimal {
  bool is_negative;
  int64_t exponent;
  bool has_more;                 /* one of the digits after the room is not 0 */
  size_t n;                      /* digits, without zeros before the first */
  uint64_t mantissa;             /* the digits as a number, if there are at most 19 */
  char digits[MOST_DIGITS + 16]; /* and room for an exponent */
} decimal;

static void add_digit(decimal *d, char digit) {
  if (d->n == 0 && digit == '0') return;
  if (d->n < 19) d->mantissa = d->mantissa * 10 + (uint64_t)(digit - '0');
  if (d->n < MOST_DIGITS) {
    d->digits[d->n++] = digit;
    return;
  }
  d->exponent++;
  if (digit != '0') d->has_more = true;
}

/* Reads the digits after an e. */
static int64_t read_exponent(const uint8_t *at, const uint8_t *end) {
  int64_t v = 0;
  bool is_negative = *at == '-';
  if (*at == '-' || *at == '+') at++;
  for (; at < end; at++) {
    if (v < INT64_MAX / 20) v = v * 10 + (*at - '0');
  }
  return is_negative ? -v : v;
}

static void read_decimal(kw_slice number, decimal *d) {
  const uint8_t *at = number.data, *end = at + number.len;
  bool is_fraction = false;
  d->is_negative = *at == '-';
  d->exponent = 0;
  d->has_more = false;
  d->n = 0;
  d->mantissa = 0;
  if (d->is_negative) at++;
  for (; at < end && *at != 'e' && *at != 'E'; at++) {
    if (*at == '.') {
      is_fraction = true;
      continue;
    }
    if (is_fraction) d->exponent--;
    add_digit(d, (char)*at);
  }
  if (at < end) d->exponent += read_exponent(at + 1, end);
}

/* Converts a number that a double operation converts without a second rounding. */
static bool convert_fast(const decimal *d, double *x) {
  *x = (double)d->mantissa;
  if (d->n == 0) return true;
  if (d->n > 19 || d->mantissa > EXACT_MAX) return false;
  if (d->exponent < -EXACT_POWER || d->exponent > EXACT_POWER) return false;
  *x = d->exponent < 0 ? *x / powers[-d->exponent] : *x * powers[d->exponent];
  return true;
}

/* Without a point the text does not depend on the locale. */
static double convert(decimal *d) {
  int64_t exponent = d->exponent;
  if (exponent > MOST_EXPONENT) exponent = MOST_EXPONENT;
  if (exponent < -MOST_EXPONENT) exponent = -MOST_EXPONENT;
  if (d->has_more) {
    d->digits[d->n++] = '1';
    exponent--;
  }
  snprintf(d->digits + d->n, sizeof d->digits - d->n, "e%d", (int)exponent);
  return strtod(d->digits, NULL);
}

bool kw_decimal_read(kw_slice number, double *x) {
  decimal d;
  read_decimal(number, &d);
  if (!convert_fast(&d, x)) *x = convert(&d);
  if (d.is_negative) *x = -*x;
  return isfinite(*x);
}

/* }====== */

/* {====== Writing ====== */

char *kw_decimal_write_digits(char *end, uint64_t v) {
  do {
    *--end = (char)('0' + v % 10);
    v /= 10;
  } while (v > 0);
  return end;
}

/* Digits of a positive double: 0.digits * 10^exponent. */
typedef struct digits {
  char text[24];
  int n;
  int exponent;
} digits;

static void trim_zeros(digits *s) {
  while (s->n > 1 && s->text[s->n - 1] == '0') s->n--;
}

/* Finds the digits of a number with few decimals: a whole number divided by a power of 10. The division rounds as
 * reading the text does. Returns false if there are more decimals. */
static bool find_decimals(double x, digits *s) {
  if (x >= 1e15 || x < 1e-5) return false;
  for (int decimals = 0; decimals <= 9; decimals++) {
    double whole = nearbyint(x * powers[decimals]);
    if (whole >= 1e15) return false; /* more digits may not be the shortest */
    if (whole / powers[decimals] != x) continue;
    char text[20], *end = text + sizeof text, *at = kw_decimal_write_digits(end, (uint64_t)whole);
    s->n = (int)(end - at);
    memcpy(s->text, at, (size_t)s->n);
    s->exponent = s->n - decimals;
    trim_zeros(s);
    return true;
  }
  return false;
}

/* Finds the fewest digits, from 15 on, that read as the same double. The point is that of the locale. */
static void find_digits(double x, digits *s) {
  char text[64];
  for (int n = 15; n <= 17; n++) {
    snprintf(text, sizeof text, "%.*e", n - 1, x);
    if (n == 17 || strtod(text, NULL) == x) break;
  }
  const char *at = text;
  for (s->n = 0; *at != 'e'; at++) {
    if (*at >= '0' && *at <= '9') s->text[s->n++] = *at;
  }
  s->exponent = (int)strtol(at + 1, NULL, 10) + 1;
  trim_zeros(s);
}

/* Writes a number that is not too small or large without an exponent. Returns the length. */
static size_t put_plain(const digits *s, char *to) {
  char *at = to;
  if (s->exponent <= 0) {
    *at++ = '0';
  } else {
    for (int i = 0; i < s->exponent; i++) *at++ = i < s->n ? s->text[i] : '0';
  }
  *at++ = '.';
  for (int i = s->exponent; i < 0; i++) *at++ = '0';
  int from = s->exponent > 0 ? s->exponent : 0;
  if (from >= s->n) *at++ = '0';
  for (int i = from; i < s->n; i++) *at++ = s->text[i];
  return (size_t)(at - to);
}

static size_t put_scientific(const digits *s, char *to) {
  char *at = to;
  *at++ = s->text[0];
  if (s->n > 1) *at++ = '.';
  for (int i = 1; i < s->n; i++) *at++ = s->text[i];
  return (size_t)(at - to) + (size_t)sprintf(at, "e%d", s->exponent - 1);
}

size_t kw_decimal_write(double x, char *to) {
  digits s = {.text = "0", .n = 1, .exponent = 1};
  char *at = to;
  if (signbit(x)) *at++ = '-';
  x = fabs(x);
  if (x != 0 && !find_decimals(x, &s)) find_digits(x, &s);
  at += s.exponent > -5 && s.exponent <= 17 ? put_plain(&s, at) : put_scientific(&s, at);
  return (size_t)(at - to);
}

/* }====== */
