/* SPDX-License-Identifier: MIT
 *
 * certificate: self-signed certificates for servers without a certificate (auto-tls).
 */
#ifndef KW_TLS_CERTIFICATE_H
#define KW_TLS_CERTIFICATE_H

#include "tls/describe.h"

#include "base/slice.h"

#define KW_TLS_MAX_YEARS 1000

/* A certificate and its private key as PEM text. */
typedef struct kw_tls_pair {
  BIO *certificate;
  BIO *key;
} kw_tls_pair;

/* Makes a key (ECDSA, P-256) and a certificate for it that is signed by itself. `hosts` are names and addresses with
 * commas between them, at least one. The certificate is valid for `years`, from 1 to KW_TLS_MAX_YEARS, of 365 days.
 * Returns false with *failure set if a host or the years are invalid, memory is short, or the process is in exit; *pair
 * then needs no drop. */
bool kw_tls_pair_init(kw_tls_pair *pair, kw_slice hosts, double years, kw_tls_failure *failure);

/* True if a certificate can be valid for so many years. Else sets *failure. */
bool kw_tls_check_years(double years, kw_tls_failure *failure);

/* Frees the texts of a pair. */
void kw_tls_pair_drop(kw_tls_pair *pair);

/* Writes both to cert.pem and key.pem in a directory. Missing directories of its path are made, with the mode 0700. The
 * key file has the mode 0600 before it has any content. An existing file is replaced atomically. A crash may leave a
 * new key with an old certificate. Returns false with *failure set. When this returns true, the files are on the
 * disk. */
bool kw_tls_pair_write(const kw_tls_pair *pair, const char *directory, kw_tls_failure *failure);

#endif
