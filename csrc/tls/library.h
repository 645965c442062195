/* SPDX-License-Identifier: MIT
 *
 * library: what all contexts and channels of the process share, and how we live beside a host that uses OpenSSL, too.
 *
 * Everything is fetched from a library context of our own, so that providers and properties that the host loads into
 * its default context do not reach us, and ours do not reach the host. No global setting of OpenSSL is changed: its
 * memory functions, its configuration and what it does at exit are the host's to choose.
 * OpenSSL's queue of errors belongs to the thread: it is cleared before a call whose error is looked at, and left
 * empty.
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
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#pragma GCC visibility pop

#include "base/common.h"

/* Returns NULL if the functions that we call are those of libssl.so.3 and libcrypto.so.3, or of our own object; else a
 * sentence that says what is wrong. A host that has OpenSSL linked into itself, and exports its symbols, would have
 * some of our calls go there, and others not. */
const char *kw_tls_library_clash(void);

/* Returns our library context; or NULL if memory is short. It lives until the process ends. */
OSSL_LIB_CTX *kw_tls_library(void);

#endif
