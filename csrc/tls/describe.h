/* SPDX-License-Identifier: MIT
 *
 * describe: failures in words. What the other side has sent, such as the names of its certificate, is escaped and cut
 * before it stands in a text.
 */
#ifndef KW_TLS_DESCRIBE_H
#define KW_TLS_DESCRIBE_H

#include "tls/library.h"

#include "face/tls.h"

/* Sets a failure, unless it is set already: the first cause is the one that counts. The text is cut if it is too
 * long. */
__attribute__((format(printf, 3, 4))) void kw_tls_fail(kw_tls_failure *failure, kw_tls_fault fault,
                                                       const char *format, ...);

/* Sets a failure to the check of a certificate that has failed in `store`. `owner` is "server" or "client", `name` the
 * name that the certificate should be for, or "". */
void kw_tls_fail_check(kw_tls_failure *failure, X509_STORE_CTX *store, const char *owner,
                       const char *name);

/* Sets a failure to what OpenSSL's queue of errors says, and clears the queue. `other` is who is at the other end,
 * "server" or "client". */
void kw_tls_fail_queue(kw_tls_failure *failure, const char *other);

/* Sets a failure of the kind KW_TLS_OPTION: "<what>: <reason of the last error>". Clears the queue of errors. */
void kw_tls_fail_option(kw_tls_failure *failure, const char *what);

#endif
