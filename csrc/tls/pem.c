/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem, O_CLOEXEC */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tls/pem.h"

#include "base/mem.h"

#define WHAT_TEXT 400
#define BEGIN "-----BEGIN"
#define DER_SEQUENCE 0x30  /* the first byte of a list in DER; no PEM text begins with it */
#define FRESH_NS 100000000 /* file systems measure time in ticks of at most 10 ms */

bool kw_tls_pem_init(kw_tls_pem *pem, const char *option, kw_slice given) {
  *pem = (kw_tls_pem){.option = option};
  if (given.len == 0) return true;
  pem->given = kw_alloc(given.len + 1);
  if (pem->given == NULL) return false;
  memcpy(pem->given, given.data, given.len);
  pem->given[given.len] = 0;
  pem->len = given.len;
  pem->is_text = memmem(given.data, given.len, BEGIN, sizeof BEGIN - 1) != NULL;
  return true;
}

void kw_tls_pem_drop(kw_tls_pem *pem) {
  if (pem->given != NULL) OPENSSL_cleanse(pem->given, pem->len);
  kw_free(pem->given);
  *pem = (kw_tls_pem){.option = pem->option};
}

void kw_tls_pem_print(const kw_tls_pem *pem, char *to, size_t cap) {
  if (pem->is_text) {
    snprintf(to, cap, "the PEM text of the option %s", pem->option);
  } else {
    snprintf(to, cap, "the file '%.300s' of the option %s", pem->given, pem->option);
  }
}

/* {====== Files ====== */

static bool is_same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         is_same_time(a->st_mtim, b->st_mtim) && is_same_time(a->st_ctim, b->st_ctim);
}

static bool is_fresh(const struct stat *file) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  int64_t seconds = (int64_t)now.tv_sec - file->st_ctim.tv_sec;
  if (seconds < -1 || seconds > 1) return false;
  return seconds * 1000000000 + now.tv_nsec - file->st_ctim.tv_nsec < FRESH_NS;
}

/* Reads up to `cap` bytes. Returns their number, or -1. */
static ssize_t read_all(int fd, char *to, size_t cap) {
  size_t len = 0;
  while (len < cap) {
    ssize_t n = read(fd, to + len, cap - len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    len += (size_t)n;
  }
  return (ssize_t)len;
}

static void fail_errno(const kw_tls_pem *pem, kw_tls_failure *failure) {
  int error = errno;
  char what[WHAT_TEXT], text[128] = "";
  kw_tls_pem_print(pem, what, sizeof what);
  kw_tls_fail(failure, KW_TLS_FILE, "%s cannot be read: %s", what,
              strerror_r(error, text, sizeof text));
}

static void fail_size(const kw_tls_pem *pem, kw_tls_failure *failure) {
  char what[WHAT_TEXT];
  kw_tls_pem_print(pem, what, sizeof what);
  kw_tls_fail(failure, KW_TLS_FILE, "%s is not a regular file of at most %d bytes", what,
              KW_TLS_FILE_BYTES);
}

static bool take_digest(kw_tls_pem *pem, const char *bytes, size_t len) {
  size_t digest_len = sizeof pem->digest;
  return EVP_Q_digest(kw_tls_library(), "SHA256", NULL, bytes, len, pem->digest, &digest_len) == 1;
}

/* Reads an open file, into a buffer one byte larger than the file: a file that grows during the read is read again at
 * the next connection. */
static BIO *load_open(kw_tls_pem *pem, int fd, kw_tls_failure *failure) {
  if (fstat(fd, &pem->seen) < 0) {
    fail_errno(pem, failure);
    return NULL;
  }
  if (!S_ISREG(pem->seen.st_mode) || pem->seen.st_size > KW_TLS_FILE_BYTES) {
    errno = EFBIG;
    fail_size(pem, failure);
    return NULL;
  }
  pem->is_fresh = is_fresh(&pem->seen);
  size_t cap = (size_t)pem->seen.st_size + 1;
  char *bytes = kw_alloc(cap);
  BIO *bio = bytes == NULL ? NULL : BIO_new(BIO_s_secmem());
  ssize_t len = bio == NULL ? 0 : read_all(fd, bytes, cap);
  if (len < 0) {
    fail_errno(pem, failure);
  } else if (bio == NULL || (len > 0 && BIO_write(bio, bytes, (int)len) != len) ||
             !take_digest(pem, bytes, (size_t)len)) {
    errno = ENOMEM;
    kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  }
  int error = errno;
  if (bytes != NULL) OPENSSL_cleanse(bytes, cap);
  kw_free(bytes);
  if (failure->fault == KW_TLS_NONE) return bio;
  BIO_free(bio);
  errno = error;
  return NULL;
}

/* Reads the file, and stores its state. O_NONBLOCK: a FIFO is refused without waiting. */
static BIO *load_file(kw_tls_pem *pem, kw_tls_failure *failure) {
  int fd = open(pem->given, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_errno(pem, failure);
  BIO *bio = fd < 0 ? NULL : load_open(pem, fd, failure);
  pem->error = bio != NULL ? 0 : errno;
  if (fd >= 0) close(fd);
  return bio;
}

static BIO *load(kw_tls_pem *pem, kw_tls_failure *failure) {
  if (!pem->is_text) return load_file(pem, failure);
  BIO *bio = pem->len > KW_TLS_FILE_BYTES ? NULL : BIO_new_mem_buf(pem->given, (int)pem->len);
  if (pem->len > KW_TLS_FILE_BYTES) fail_size(pem, failure);
  if (bio == NULL) kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  return bio;
}

/* True if, according to stat, the file has not changed since it was read. */
static bool is_untouched(const kw_tls_pem *pem) {
  struct stat now;
  return pem->error == 0 && !pem->is_fresh && stat(pem->given, &now) == 0 &&
         is_same_file(&now, &pem->seen);
}

bool kw_tls_pem_has_changed(kw_tls_pem *pem) {
  kw_tls_failure ignored = {KW_TLS_NONE, ""};
  uint8_t digest[KW_TLS_DIGEST];
  int error = pem->error;
  if (pem->given == NULL || pem->is_text || is_untouched(pem)) return false;
  memcpy(digest, pem->digest, sizeof digest);
  BIO *bio = load_file(pem, &ignored);
  BIO_free(bio);
  ERR_clear_error();
  if (bio == NULL || error != 0) return pem->error != error;
  return memcmp(digest, pem->digest, sizeof digest) != 0;
}

/* }====== */

/* {====== PEM ====== */

/* Without this callback OpenSSL would ask at the terminal. */
static int refuse_password(char *to, int size, int is_writing, void *was_asked) {
  (void)to, (void)size, (void)is_writing;
  *(bool *)was_asked = true;
  return -1;
}

/* True if the text has ended, and nothing in it was malformed. */
static bool is_at_end(void) {
  unsigned long error = ERR_peek_last_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

static void fail_with(const kw_tls_pem *pem, const char *what, kw_tls_failure *failure) {
  char text[WHAT_TEXT + 100], name[WHAT_TEXT];
  kw_tls_pem_print(pem, name, sizeof name);
  snprintf(text, sizeof text, "%s has %s", name, what);
  if (is_at_end()) ERR_clear_error();
  kw_tls_fail_reason(failure, KW_TLS_FILE, text);
}

/* Reads the next certificate. Returns NULL at the end of the text, and if the text is malformed. */
static X509 *next_certificate(BIO *bio) {
  bool was_asked = false;
  X509 *certificate = X509_new_ex(kw_tls_library(), NULL);
  if (certificate == NULL) return NULL;
  if (PEM_read_bio_X509(bio, &certificate, refuse_password, &was_asked) != NULL) return certificate;
  X509_free(certificate);
  return NULL;
}

/* Reads a list in DER instead of PEM, which newer versions of etcd expect. Returns NULL if the file is not such a
 * list. */
static X509_CRL *read_der_list(BIO *bio) {
  X509_CRL *list = X509_CRL_new_ex(kw_tls_library(), NULL);
  if (list == NULL) return NULL;
  if (d2i_X509_CRL_bio(bio, &list) != NULL) return list;
  X509_CRL_free(list);
  return NULL;
}

static bool is_der(BIO *bio) {
  char *bytes;
  long len = BIO_get_mem_data(bio, &bytes);
  return len > 0 && (uint8_t)bytes[0] == DER_SEQUENCE;
}

static X509_CRL *next_list(BIO *bio) {
  bool was_asked = false;
  X509_CRL *list = X509_CRL_new_ex(kw_tls_library(), NULL);
  if (list == NULL) return NULL;
  if (PEM_read_bio_X509_CRL(bio, &list, refuse_password, &was_asked) != NULL) return list;
  X509_CRL_free(list);
  return NULL;
}

STACK_OF(X509) * kw_tls_pem_certificates(kw_tls_pem *pem, kw_tls_failure *failure) {
  ERR_clear_error();
  BIO *bio = load(pem, failure);
  STACK_OF(X509) *found = bio == NULL ? NULL : sk_X509_new_null();
  X509 *next = found == NULL ? NULL : next_certificate(bio);
  while (next != NULL && sk_X509_push(found, next) > 0) next = next_certificate(bio);
  X509_free(next);
  if (found != NULL && sk_X509_num(found) == 0) {
    fail_with(pem, is_at_end() ? "no certificate" : "a malformed certificate", failure);
  } else if (found != NULL && !is_at_end()) {
    fail_with(pem, "a malformed certificate", failure);
  }
  if (found == NULL) kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  BIO_free(bio);
  ERR_clear_error();
  if (failure->fault == KW_TLS_NONE) return found;
  sk_X509_pop_free(found, X509_free);
  return NULL;
}

STACK_OF(X509_CRL) * kw_tls_pem_lists(kw_tls_pem *pem, kw_tls_failure *failure) {
  ERR_clear_error();
  BIO *bio = load(pem, failure);
  STACK_OF(X509_CRL) *found = bio == NULL ? NULL : sk_X509_CRL_new_null();
  bool is_binary = found != NULL && is_der(bio);
  X509_CRL *next = found == NULL ? NULL : is_binary ? read_der_list(bio) : next_list(bio);
  while (next != NULL && sk_X509_CRL_push(found, next) > 0)
    next = is_binary ? NULL : next_list(bio);
  X509_CRL_free(next);
  if (found != NULL && sk_X509_CRL_num(found) == 0) {
    fail_with(pem, is_at_end() ? "no revocation list" : "a malformed revocation list", failure);
  } else if (found != NULL && !is_binary && !is_at_end()) {
    fail_with(pem, "a malformed revocation list", failure);
  }
  if (found == NULL) kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  BIO_free(bio);
  ERR_clear_error();
  if (failure->fault == KW_TLS_NONE) return found;
  sk_X509_CRL_pop_free(found, X509_CRL_free);
  return NULL;
}

EVP_PKEY *kw_tls_pem_key(kw_tls_pem *pem, kw_tls_failure *failure) {
  bool was_asked = false;
  ERR_clear_error();
  BIO *bio = load(pem, failure);
  if (bio == NULL) return NULL;
  EVP_PKEY *key =
      PEM_read_bio_PrivateKey_ex(bio, NULL, refuse_password, &was_asked, kw_tls_library(), NULL);
  ERR_clear_error();
  if (key == NULL && was_asked) {
    fail_with(pem, "a key that is encrypted; only keys without a password can be used", failure);
  } else if (key == NULL) {
    fail_with(pem, "no private key, or a malformed one", failure);
  }
  BIO_free(bio);
  return key;
}

/* }====== */
