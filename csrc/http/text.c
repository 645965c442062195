/* SPDX-License-Identifier: MIT */
#include "http/text.h"

/* The sets that a character belongs to. HOST has the unreserved characters, the sub-delims and % of RFC 3986. */
enum { VALUE = 1, TARGET = 2, TOKEN = 4, HOST = 8 };

/* The sum of the sets of each character, in hexadecimal. */
static const char sums[128 + 1] = "0000000001000000"  /* tab */
                                  "0000000000000000"  /**/
                                  "1f15ffffbbffbff3"  /*   ! " # $ % & ' ( ) * + , - . / */
                                  "ffffffffff3b1b13"  /* 0-9 : ; < = > ? */
                                  "3fffffffffffffff"  /* @ A-O */
                                  "fffffffffff3337f"  /* P-Z [ \ ] ^ _ */
                                  "7fffffffffffffff"  /* ` a-o */
                                  "fffffffffff373f0"; /* p-z { | } ~ DEL */

static bool is_in(uint8_t c, uint8_t set) {
  return c < 0x80 ? (kw_text_hex((uint8_t)sums[c]) & set) != 0 : set == VALUE;
}

static bool is_of(kw_slice text, uint8_t set) {
  for (size_t i = 0; i < text.len; i++) {
    if (!is_in(text.data[i], set)) return false;
  }
  return true;
}

bool kw_text_is_token(kw_slice text) {
  return text.len > 0 && is_of(text, TOKEN);
}

bool kw_text_is_value(kw_slice text) {
  return is_of(text, VALUE);
}

bool kw_text_is_target(kw_slice text) {
  return text.len > 0 && is_of(text, TARGET);
}

static bool is_number(kw_slice text) {
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
  }
  return true;
}

/* Returns the length of the address in brackets at the begin of the text, with the brackets; 0: there is none. */
static size_t literal_length(kw_slice text) {
  const uint8_t *end = text.len > 0 ? memchr(text.data, ']', text.len) : NULL;
  if (end == NULL) return 0;
  size_t len = (size_t)(end - text.data);
  for (size_t i = 1; i < len; i++) {
    if (text.data[i] != ':' && !is_in(text.data[i], HOST)) return 0;
  }
  return len < 3 ? 0 : len + 1;
}

bool kw_text_is_authority(kw_slice text) {
  size_t host = 0;
  if (text.len > 0 && text.data[0] == '[') {
    host = literal_length(text);
  } else {
    while (host < text.len && is_in(text.data[host], HOST)) host++;
  }
  if (host == 0 || host == text.len) return host > 0;
  return text.data[host] == ':' &&
         is_number(kw_slice_of(text.data + host + 1, text.len - host - 1));
}

bool kw_text_equal(kw_slice text, const char *lower) {
  for (size_t i = 0; i < text.len; i++) {
    uint8_t c = text.data[i];
    if (c >= 'A' && c <= 'Z') c |= 0x20;
    if (c != (uint8_t)lower[i] || c == 0) return false;
  }
  return lower[text.len] == 0;
}

kw_slice kw_text_trim(kw_slice text) {
  while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) text.data++, text.len--;
  while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
    text.len--;
  return text;
}

bool kw_text_next(kw_slice *list, kw_slice *element) {
  if (list->len == 0) return false;
  const uint8_t *comma = memchr(list->data, ',', list->len);
  size_t len = comma == NULL ? list->len : (size_t)(comma - list->data);
  *element = kw_text_trim(kw_slice_of(list->data, len));
  len += comma != NULL;
  *list = kw_slice_of(list->data + len, list->len - len);
  return true;
}
