/* SPDX-License-Identifier: MIT
 *
 * source: where certificates, keys and revocation lists come from: PEM text, or a file with such text.
 *
 * A source knows the file as it was when the source was read last, by device, inode, size and times: one stat tells
 * that a file was neither written nor replaced. Of a file that was, the digest tells whether its content is another.
 */
#ifndef KW_TLS_SOURCE_H
#define KW_TLS_SOURCE_H

#include <sys/stat.h>
#include <sys/types.h>

#include "tls/describe.h"

#include "base/slice.h"

#define KW_TLS_FILE_BYTES (1 << 20) /* bytes that a file of certificates may have */
#define KW_TLS_DIGEST 32            /* bytes of a SHA-256 */

/* An all-zero source is not given. */
typedef struct kw_tls_source {
  const char *option; /* its name, for texts; static */
  char *given;        /* the text or the path, with a 0 at its end; NULL: not given */
  size_t len;
  bool is_text;

  struct stat seen;              /* the file when it was read last */
  uint8_t digest[KW_TLS_DIGEST]; /* of its content then */
  int error;                     /* why the file could not be read last, as an errno; 0: it could */
  bool is_fresh; /* the file had just been written: a second write might have left the same times */
} kw_tls_source;

/* Makes a source of what is given: PEM text if "-----BEGIN" is in it, else a path. An empty slice: not given. Returns
 * false if memory is short. */
bool kw_tls_source_init(kw_tls_source *source, const char *option, kw_slice given);

void kw_tls_source_drop(kw_tls_source *source);

/* True if the content of the file is another than it was when the source was read last; if the file can be read, and
 * could not; or if it cannot, for another reason than before. */
bool kw_tls_source_has_changed(kw_tls_source *source);

/* Each of these reads the source, which is given, and returns what is in it; or NULL with *failure set. The caller
 * frees the result. */
STACK_OF(X509) * kw_tls_source_certificates(kw_tls_source *source, kw_tls_failure *failure);
STACK_OF(X509_CRL) * kw_tls_source_lists(kw_tls_source *source, kw_tls_failure *failure);
EVP_PKEY *kw_tls_source_key(kw_tls_source *source, kw_tls_failure *failure);

/* Prints what the source is, for texts: "the file '/a/b' (option ca)". */
void kw_tls_source_print(const kw_tls_source *source, char *to, size_t cap);

#endif
