/* SPDX-License-Identifier: MIT */
#include "http/text.h"

/* The sets that an ASCII character belongs to. HOST has the unreserved characters, the sub-delims and % of RFC 3986. */
enum { VALUE = 1, TARGET = 2, TOKEN = 4, HOST = 8 };

/* The sets of each character: the lower four bits of the letter in its place. */
static const char sets[256] = "@@@@@@@@@A@@@@@@"  /* tab */
                              "@@@@@@@@@@@@@@@@"  /**/
                              "AOAEOOOOKKOOKOOC"  /*   ! " # $ % & ' ( ) * + , - . / */
                              "OOOOOOOOOOCKAKAC"  /* 0-9 : ; < = > ? */
                              "COOOOOOOOOOOOOOO"  /* @ A-O */
                              "OOOOOOOOOOOCCCGO"  /* P-Z [ \ ] ^ _ */
                              "GOOOOOOOOOOOOOOO"  /* ` a-o */
                              "OOOOOOOOOOOCGCO@"; /* p-z { | } ~ DEL */

static inline bool is_in(uint8_t c, uint8_t set) {
  return (sets[c] & set) != 0;
}

/* Returns the number of characters at the begin that belong to a set. */
static size_t span(kw_slice text, uint8_t set) {
  size_t n = 0;
  while (n < text.len && is_in(text.data[n], set)) n++;
  return n;
}

size_t kw_text_token(kw_slice text) {
  return span(text, TOKEN);
}

bool kw_text_is_token(kw_slice text) {
  return text.len > 0 && span(text, TOKEN) == text.len;
}

bool kw_text_is_target(kw_slice text) {
  return text.len > 0 && span(text, TARGET) == text.len;
}

/* True if eight bytes are neither control bytes nor DEL. May be false for others, too. */
static bool is_plain(const uint8_t *bytes) {
  const uint64_t ones = UINT64_MAX / 255;
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  uint64_t low = (word - ones * 0x20) & ~word, del = word ^ ones * 0x7f;
  return ((low | ((del - ones) & ~del)) & ones * 0x80) == 0;
}

bool kw_text_is_value(kw_slice text) {
  size_t n = text.len, i = 0;
  while (i + 8 <= n && is_plain(text.data + i)) i += 8;
  if (n >= 8 && i + 8 > n && is_plain(text.data + n - 8)) return true;
  for (; i < n; i++) {
    if (text.data[i] < 0x80 && !is_in(text.data[i], VALUE)) return false;
  }
  return true;
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
    host = span(text, HOST);
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
