/* SPDX-License-Identifier: MIT
 *
 * describe: texts of failures. Texts of the other side, for example the names of its certificate, are truncated, and
 * their unprintable bytes are replaced, before they are used.
 */
#ifndef KW_TLS_DESCRIBE_H
#define KW_TLS_DESCRIBE_H

#include "tls/library.h"

#include "face/tls.h"

#define KW_TLS_NAME 256    /* limit of a host's name, and of a cache key, with the 0 at their end */
#define KW_TLS_SUBJECT 160 /* bytes of a subject or an issuer, with the 0 at its end */
#define KW_TLS_NAMES 240   /* bytes of the list of names that a certificate is for */

/* The description of a certificate. Names that do not fit are cut. */
typedef struct kw_tls_summary {
  char subject[KW_TLS_SUBJECT];
  char issuer[KW_TLS_SUBJECT];
  char names[KW_TLS_NAMES]; /* names and addresses that the certificate is for, with commas */
  int64_t not_before;       /* seconds since 1970 */
  int64_t not_after;
} kw_tls_summary;

/* Describes a certificate. */
void kw_tls_summarize(const X509 *certificate, kw_tls_summary *summary);

/* Copies the name or the address of a host, without a dot at the end of a name and without brackets around an address.
 * Returns false if the text is neither: it is empty or too long, has a 0 in it, has brackets around a name, or begins
 * with a dot, with which OpenSSL would accept every name that ends like that. */
bool kw_tls_read_host(const char *given, size_t len, char host[KW_TLS_NAME]);

/* True if a host is an address, and no name. */
bool kw_tls_is_address(const char *host);

/* True if a certificate is for a host, see kw_tls_read_host. */
bool kw_tls_is_for(X509 *certificate, const char *given, size_t len);

/* Sets a failure, unless it is set already: the first cause is the one that counts. The text is cut if it is too
 * long. */
__attribute__((format(printf, 3, 4))) void kw_tls_fail(kw_tls_failure *failure, kw_tls_fault fault,
                                                       const char *format, ...);

/* Sets a failure to the check of a certificate that has failed in `store`. `owner` is "server" or "client", `name` the
 * name that the certificate should be for, or "". */
void kw_tls_fail_check(kw_tls_failure *failure, X509_STORE_CTX *store, const char *owner,
                       const char *name);

/* Sets a failure to the reason in OpenSSL's queue of errors, and clears the queue. `other` is the role of the other
 * side, "server" or "client". */
void kw_tls_fail_queue(kw_tls_failure *failure, const char *other);

/* Sets a failure: "<what>: <reason of the last error>". Clears the queue of errors. */
void kw_tls_fail_reason(kw_tls_failure *failure, kw_tls_fault fault, const char *what);

#endif
