/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tls/library.h"

#include "tls/describe.h"

#define PAUSE_NS 50000 /* between two checks of other threads */
#define PAUSES 40000   /* then exit and fork proceed: a thread waits for an unreadable file */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static OSSL_LIB_CTX *library;

OSSL_LIB_CTX *kw_tls_library(void) {
  pthread_mutex_lock(&mutex);
  if (library == NULL) library = OSSL_LIB_CTX_new();
  OSSL_LIB_CTX *result = library;
  pthread_mutex_unlock(&mutex);
  return result;
}

/* {====== Exit and fork ====== */

static atomic_uint users;             /* threads that may call OpenSSL now */
static atomic_uint forks;             /* running forks */
static atomic_bool is_ending;         /* the process is in exit */
static _Thread_local unsigned nested; /* calls of kw_tls_enter by this thread */

static void pause_briefly(void) {
  nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

bool kw_tls_enter(void) {
  if (nested > 0) {
    nested++;
    return true;
  }
  for (;;) {
    atomic_fetch_add(&users, 1);
    if (!atomic_load(&is_ending) && atomic_load(&forks) == 0) break;
    atomic_fetch_sub(&users, 1);
    if (atomic_load(&is_ending)) return false;
    pause_briefly();
  }
  nested = 1;
  return true;
}

void kw_tls_leave(void) {
  if (--nested == 0) atomic_fetch_sub(&users, 1);
}

bool kw_tls_is_ending(void) {
  return atomic_load(&is_ending);
}

void kw_tls_fail_ending(kw_tls_failure *failure) {
  kw_tls_fail(failure, KW_TLS_ENDING, "TLS can no longer be used: the process is exiting");
}

/* Returns 1 if this thread is in OpenSSL: then a signal handler has interrupted it, and calls exit or fork. */
static unsigned own_use(void) {
  return nested > 0 ? 1 : 0;
}

static void await_others(void) {
  for (int i = 0; i < PAUSES && atomic_load(&users) > own_use(); i++) pause_briefly();
}

static void on_exit_begun(void) {
  atomic_store(&is_ending, true);
  await_others();
}

static void before_fork(void) {
  atomic_fetch_add(&forks, 1);
  await_others();
}

static void after_fork_in_parent(void) {
  atomic_fetch_sub(&forks, 1);
}

/* No other thread is in the child. */
static void after_fork_in_child(void) {
  atomic_store(&forks, 0);
  atomic_store(&users, own_use());
}

/* Handlers are called in reverse order of registration: ours runs before that of OpenSSL, which is registered when
 * OpenSSL is initialized. Without any option OpenSSL would not be initialized here. */
static void begin(void) {
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
  atexit(on_exit_begun);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void kw_tls_library_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}

/* }====== */

/* One function of each part of OpenSSL that we use. If a host program has linked one function statically, it also has
 * the others of that part. */
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
      return "keywatch.tls needs OpenSSL's shared libraries, but this program is linked with its "
             "own OpenSSL, and exports its symbols";
  }
  if (OpenSSL_version_num() < 0x30000000) return "keywatch.tls needs OpenSSL 3";
  return NULL;
}
