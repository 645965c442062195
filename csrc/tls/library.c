/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <pthread.h>

#include "tls/library.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static OSSL_LIB_CTX *library;

OSSL_LIB_CTX *kw_tls_library(void) {
  pthread_mutex_lock(&mutex);
  if (library == NULL) library = OSSL_LIB_CTX_new();
  OSSL_LIB_CTX *result = library;
  pthread_mutex_unlock(&mutex);
  return result;
}

/* One function of each part that we use. Where a host has linked one of them into itself, it has the others of that
 * part, too. */
static void *const used[] = {(void *)SSL_CTX_new_ex,
                             (void *)SSL_new,
                             (void *)SSL_read_ex,
                             (void *)SSL_do_handshake,
                             (void *)SSL_CTX_set_verify,
                             (void *)ERR_clear_error,
                             (void *)BIO_new,
                             (void *)BIO_meth_new,
                             (void *)PEM_read_bio_X509,
                             (void *)X509_new_ex,
                             (void *)X509_STORE_add_crl,
                             (void *)EVP_PKEY_free,
                             (void *)OSSL_LIB_CTX_new,
                             (void *)OPENSSL_sk_num,
                             (void *)CRYPTO_free,
                             (void *)ASN1_STRING_set,
                             (void *)OPENSSL_init_ssl,
                             (void *)OPENSSL_init_crypto};

/* True if the object that a function is in is OpenSSL's, or our own. */
static bool is_in_place(void *function) {
  Dl_info info, own;
  if (dladdr(function, &info) == 0 || dladdr((void *)kw_tls_library_clash, &own) == 0) return true;
  if (info.dli_fbase == own.dli_fbase) return true;
  const char *slash = strrchr(info.dli_fname, '/');
  const char *name = slash == NULL ? info.dli_fname : slash + 1;
  return strncmp(name, "libssl.so", 9) == 0 || strncmp(name, "libcrypto.so", 12) == 0;
}

const char *kw_tls_library_clash(void) {
  for (size_t i = 0; i < KW_LENGTH(used); i++) {
    if (!is_in_place(used[i]))
      return "keywatch.tls needs OpenSSL's shared libraries, but this program has an OpenSSL of "
             "its own linked into it, "
             "and exports its symbols";
  }
  if (OpenSSL_version_num() < 0x30000000) return "keywatch.tls needs OpenSSL 3";
  return NULL;
}
