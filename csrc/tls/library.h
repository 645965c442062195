/* SPDX-License-Identifier: MIT
 *
 * library: the state of OpenSSL that all contexts and channels of the process share, in a host program that may use
 * OpenSSL, too.
 *
 * Everything is fetched from our own library context, so that providers and properties that the host loads into its
 * default context do not affect us, and ours do not affect the host. No global OpenSSL setting is changed: the host
 * chooses its memory functions, its configuration and its actions at exit.
 *
 * OpenSSL's queue of errors belongs to the thread: it is cleared before a call whose error is used, and left empty.
 * Functions that only free keep the host's errors in the queue: a finalizer may run in the middle of the host's calls.
 *
 * At exit OpenSSL frees the state that its threads share, while the threads still run; and after fork its locks may
 * stay locked forever. So every OpenSSL call is made between kw_tls_enter and kw_tls_leave, and exit and fork wait
 * until no thread is in between. That takes a signature, or the reading of a file; after 2 seconds, because of a file
 * that cannot be read, they proceed.
 */
#ifndef KW_TLS_LIBRARY_H
#define KW_TLS_LIBRARY_H

/* OpenSSL's functions are in another object: they are declared before the pragma of common.h, which hides the
 * declarations after it. */
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

/* Returns NULL if the functions that we call are those of libssl.so and libcrypto.so, or of our own object, and the
 * version is 3 or later; else the text of the error. If a host is linked with its own OpenSSL, and exports its symbols,
 * some of our calls would go there, and others not. */
const char *kw_tls_library_clash(void);

/* Initializes OpenSSL, and registers the handlers of exit and fork for kw_tls_enter. Called when the module is
 * opened. */
void kw_tls_library_begin(void);

/* Begins OpenSSL calls by this thread; calls may be nested. Returns false once the process is in exit: OpenSSL must
 * no longer be called, not even to free its objects. Waits while a thread forks. */
bool kw_tls_enter(void);

/* Ends the OpenSSL calls that kw_tls_enter has begun; it must have returned true. */
void kw_tls_leave(void);

/* True once kw_tls_enter returns false. */
bool kw_tls_is_ending(void);

/* Sets a failure to KW_TLS_ENDING, because kw_tls_enter has returned false. */
void kw_tls_fail_ending(kw_tls_failure *failure);

/* Returns our library context; or NULL if memory is short. It lives until the process ends. */
OSSL_LIB_CTX *kw_tls_library(void);

#endif
