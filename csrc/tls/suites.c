/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "tls/suites.h"

#define LIST_TEXT 2048 /* limit of a list of suites in OpenSSL's names, in bytes */
#define NAME_TEXT 80

/* The suites that HTTP/2 allows in TLS 1.2: forward secrecy and authenticated encryption. AES with 128 bits is first,
 * as in Go's servers: it is strong enough, and the fastest. */
#define OWN_12 "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20"
#define OWN_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"

int kw_tls_version_of(kw_slice name) {
  if (name.len == 0) return 0;
  if (kw_slice_is(name, "TLS1.2")) return TLS1_2_VERSION;
  if (kw_slice_is(name, "TLS1.3")) return TLS1_3_VERSION;
  return -1;
}

/* Go's old names of two suites lack the hash at their end. */
static const char *openssl_name(const char *name) {
  char longer[NAME_TEXT + 8];
  size_t len = strlen(name), tail = strlen("CHACHA20_POLY1305");
  if (len >= tail && strcmp(name + len - tail, "CHACHA20_POLY1305") == 0) {
    snprintf(longer, sizeof longer, "%s_SHA256", name);
    name = longer;
  }
  const char *found = OPENSSL_cipher_name(name);
  return found == NULL || strcmp(found, "(NONE)") == 0 ? NULL : found;
}

/* Adds a suite to a list. Returns false if the list is full. */
static bool add(char list[LIST_TEXT], const char *name) {
  size_t len = strlen(list);
  int n = snprintf(list + len, LIST_TEXT - len, "%s%s", len == 0 ? "" : ":", name);
  return n > 0 && (size_t)n < LIST_TEXT - len;
}

static bool is_13(const char *openssl) {
  return strncmp(openssl, "TLS_", 4) == 0;
}

static bool add_name(char twelve[LIST_TEXT], char thirteen[LIST_TEXT], kw_slice name,
                     kw_tls_failure *failure) {
  char copy[NAME_TEXT + 1] = "";
  if (name.len <= NAME_TEXT) memcpy(copy, name.data, name.len);
  const char *found = openssl_name(copy);
  if (found != NULL && add(is_13(found) ? thirteen : twelve, found)) return true;
  kw_tls_fail(failure, KW_TLS_OPTION, "option 'tls.cipher_suites': there is no cipher suite '%.*s'",
              (int)kw_min_size(name.len, NAME_TEXT), (const char *)name.data);
  return false;
}

/* Removes the first name from a list, and returns it. */
static kw_slice take_name(kw_slice *list) {
  const uint8_t *comma = memchr(list->data, ',', list->len);
  size_t len = comma == NULL ? list->len : (size_t)(comma - list->data);
  kw_slice name = kw_slice_of(list->data, len);
  size_t used = comma == NULL ? len : len + 1;
  *list = kw_slice_of(list->data + used, list->len - used);
  return name;
}

/* Refuses suites of a version that is excluded, which would have no effect. */
static bool check_versions(SSL_CTX *ssl, const char *twelve, const char *thirteen,
                           kw_tls_failure *failure) {
  if (twelve[0] != 0 && SSL_CTX_get_min_proto_version(ssl) == TLS1_3_VERSION) {
    kw_tls_fail(failure, KW_TLS_OPTION,
                "option 'tls.cipher_suites': TLS 1.2 cipher suites have no effect if the minimum "
                "version is TLS 1.3");
  } else if (thirteen[0] != 0 && SSL_CTX_get_max_proto_version(ssl) == TLS1_2_VERSION) {
    kw_tls_fail(failure, KW_TLS_OPTION,
                "option 'tls.cipher_suites': TLS 1.3 cipher suites have no effect if the maximum "
                "version is TLS 1.2");
  }
  return failure->fault == KW_TLS_NONE;
}

bool kw_tls_suites_apply(SSL_CTX *ssl, kw_slice names, kw_tls_failure *failure) {
  char twelve[LIST_TEXT] = "", thirteen[LIST_TEXT] = "";
  while (names.len > 0) {
    if (!add_name(twelve, thirteen, take_name(&names), failure)) return false;
  }
  if (!check_versions(ssl, twelve, thirteen, failure)) return false;
  if (SSL_CTX_set_cipher_list(ssl, twelve[0] == 0 ? OWN_12 : twelve) == 1 &&
      SSL_CTX_set_ciphersuites(ssl, thirteen[0] == 0 ? OWN_13 : thirteen) == 1)
    return true;
  kw_tls_fail_reason(failure, KW_TLS_OPTION, "option 'tls.cipher_suites' cannot be used");
  return false;
}
