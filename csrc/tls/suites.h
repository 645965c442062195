/* SPDX-License-Identifier: MIT
 *
 * suites: TLS versions and cipher suites by the names that etcd and Go use.
 */
#ifndef KW_TLS_SUITES_H
#define KW_TLS_SUITES_H

#include "tls/describe.h"

#include "base/slice.h"

/* Sets the cipher suites of a context to a list of names with commas between them, for example
 * TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Names of TLS 1.3 and of TLS 1.2 may be mixed. A version without a name in the
 * list gets our default suites. Returns false with *failure set if a name is unknown, or of a version that the context
 * excludes. */
bool kw_tls_suites_apply(SSL_CTX *ssl, kw_slice names, kw_tls_failure *failure);

/* Returns TLS1_2_VERSION for "TLS1.2", TLS1_3_VERSION for "TLS1.3", 0 for an empty name, and -1 for any other. */
int kw_tls_version_of(kw_slice name);

#endif
