/* SPDX-License-Identifier: MIT
 *
 * library: what all contexts and channels of the process share, and how we live beside a host that uses OpenSSL, too.
 *
 * Everything is fetched from a library context of our own, so that providers and properties that the host loads into
 * its default context do not reach us, and ours do not reach the host. No global setting of OpenSSL is changed: its
 * memory functions, its configuration and what it does at exit are the host's to choose.
 * OpenSSL's queue of errors belongs to the thread: it is cleared before a call whose error is looked at, and left
 * empty. What only frees leaves the errors of the host there: a finalizer may run in the middle of the host's calls.
 *
 * At exit OpenSSL frees the state that its threads share, while the threads still run; and after fork its locks may
 * stay locked for ever. So every call of OpenSSL is made between kw_tls_enter and kw_tls_leave. At exit and before
 * fork no thread is in between: exit and fork wait for those that are, which takes a signature at most, or the
 * reading of a file.
 */
#ifndef KW_TLS_LIBRARY_H
#define KW_TLS_LIBRARY_H

/* OpenSSL's functions live in another object: they are declared before the pragma of common.h hides what follows. */
#pragma GCC visibility push(default)
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#pragma GCC visibility pop

#include "base/common.h"
#include "face/tls.h"

/* Returns NULL if the functions that we call are those of libssl.so.3 and libcrypto.so.3, or of our own object; else a
 * sentence that says what is wrong. A host that has OpenSSL linked into itself, and exports its symbols, would have
 * some of our calls go there, and others not. */
const char *kw_tls_library_clash(void);

/* Has OpenSSL begin, and prepares the ends of kw_tls_enter. Called when the module is opened. */
void kw_tls_library_begin(void);

/* Begins calls of OpenSSL by this thread; calls may be nested. Returns false once the process is in exit: OpenSSL must
 * not be called any more, not even to free what it has. Waits while a thread forks. */
bool kw_tls_enter(void);

/* Ends what kw_tls_enter, which has returned true, has begun. */
void kw_tls_leave(void);

/* True once kw_tls_enter returns false. */
bool kw_tls_is_ending(void);

/* Sets the failure of what is no longer done because kw_tls_enter has returned false. */
void kw_tls_fail_ending(kw_tls_failure *failure);

/* Returns our library context; or NULL if memory is short. It lives until the process ends. */
OSSL_LIB_CTX *kw_tls_library(void);

#endif
