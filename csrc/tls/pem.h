/* SPDX-License-Identifier: MIT
 *
 * pem: certificates, keys and revocation lists in PEM: the text itself, or a file with the text. A file may
 * also have a revocation list in DER.
 *
 * A kw_tls_pem stores device, inode, size and times of the file when it was last read: one stat shows whether the file
 * was written or replaced. If so, the digest shows whether its content has changed.
 */
#ifndef KW_TLS_PEM_H
#define KW_TLS_PEM_H

#include <sys/stat.h>
#include <sys/types.h>

#include "tls/describe.h"

#include "base/slice.h"

#define KW_TLS_FILE_BYTES (1 << 20) /* limit of a file, in bytes */
#define KW_TLS_DIGEST 32            /* bytes of a SHA-256 */

/* All zero: the option is not given. */
typedef struct kw_tls_pem {
  const char *option; /* its name, for texts; static */
  char *given;        /* the text or the path, with a 0 at its end; NULL: not given */
  size_t len;
  bool is_text;

  struct stat seen;              /* the file when it was last read */
  uint8_t digest[KW_TLS_DIGEST]; /* of its content then */
  int error;                     /* errno of the last attempt to read the file; 0: success */
  bool is_fresh; /* the file had just been written: another write may have the same times */
} kw_tls_pem;

/* Sets the value of an option: PEM text if it contains "-----BEGIN", otherwise a path. An empty slice: not given.
 * Returns false if memory is short. */
bool kw_tls_pem_init(kw_tls_pem *pem, const char *option, kw_slice given);

/* Erases and frees the text or path. The option is then not given. */
void kw_tls_pem_drop(kw_tls_pem *pem);

/* True if the content of the file has changed since it was last read, if the file has become readable, or if it cannot
 * be read for a new reason. Reads a file that may have changed, so the next call does not report the same change. */
bool kw_tls_pem_has_changed(kw_tls_pem *pem);

/* Each of these reads the text or file, which must be given, and returns its content; or NULL with *failure set. The
 * caller frees the result. */
STACK_OF(X509) * kw_tls_pem_certificates(kw_tls_pem *pem, kw_tls_failure *failure);
STACK_OF(X509_CRL) * kw_tls_pem_lists(kw_tls_pem *pem, kw_tls_failure *failure);
EVP_PKEY *kw_tls_pem_key(kw_tls_pem *pem, kw_tls_failure *failure);

/* Prints a description for messages: "the file '/a/b' of the option ca". */
void kw_tls_pem_print(const kw_tls_pem *pem, char *to, size_t cap);

#endif
