/* SPDX-License-Identifier: MIT */
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
