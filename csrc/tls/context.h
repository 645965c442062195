/* SPDX-License-Identifier: MIT
 *
 * context: what the connections of one client, or of one server, have in common: certificates, checks, versions.
 *
 * A context is built from its options and files. Each new channel checks whether a file has changed, and rebuilds the
 * context if one has; open channels keep the old one. If the new files are unusable (a key that does not match, a
 * half-written file), new channels use the old ones, and kw_tls_context_trouble returns the reason, until the files are
 * in order. A context that could never be built makes no channels.
 *
 * A client's context keeps up to KW_TLS_KEPT sessions for resumption, each for one server. The certificates of a
 * session are verified again before it is resumed. A session is forgotten when an alert has ended its connection, but
 * not when the connection was cut. All are forgotten when the context is built anew.
 *
 * A server that verifies clients gives no tickets, so that each handshake verifies. The tickets of other servers become
 * void when the context is built anew, and after KW_TLS_TICKET_LIFE.
 */
#ifndef KW_TLS_CONTEXT_H
#define KW_TLS_CONTEXT_H

#include "tls/buffer.h"
#include "tls/pem.h"

#define KW_TLS_KEPT 16          /* sessions of a client's context */
#define KW_TLS_TICKET_LIFE 3600 /* seconds after which a server has other keys for its tickets */

/* What is empty is not given. Slices are copied. */
typedef struct kw_tls_options {
  bool is_server;
  bool is_unverified; /* a client trusts any server */
  bool
      wants_client_cert; /* a server lets only clients with a certificate in; so it does if `ca` is given */
  kw_slice ca;           /* trusted authorities; default: those of the system */
  kw_slice cert;         /* own certificate, and the ones between it and its authority */
  kw_slice key;          /* private key of `cert` */
  kw_slice
      crl; /* lists of revoked certificates, those of authorities, too. A list that is out of date counts */
  kw_slice
      server_name; /* of a client: the name or address that the certificate of the server has to be for */
  kw_slice
      allowed_hosts; /* of a server: certificates of clients have to be for one of these names and addresses,
                           * which are separated by commas */
  kw_slice cipher_suites; /* see kw_tls_suites_apply */
  kw_slice min_version;   /* "TLS1.2" (default) or "TLS1.3" */
  kw_slice max_version;
} kw_tls_options;

/* Builds a context with one reference. Returns NULL with *failure set if an option or a file is unusable. */
kw_tls_context *kw_tls_context_new(const kw_tls_options *options, kw_tls_failure *failure);

kw_tls_context *kw_tls_context_retain(kw_tls_context *context);

/* Gives up a reference. The last one frees the context. */
void kw_tls_context_release(kw_tls_context *context);

bool kw_tls_context_is_server(const kw_tls_context *context);

/* Reads changed files. Returns false if they are unusable; see kw_tls_context_trouble. */
bool kw_tls_context_refresh(kw_tls_context *context);

/* Returns why the files of a context, which have changed, could not be used; a failure of KW_TLS_NONE: they could. */
const kw_tls_failure *kw_tls_context_trouble(const kw_tls_context *context);

/* Returns the spare block of the channels of a context. */
kw_tls_spare *kw_tls_context_spare(kw_tls_context *context);

/* What has become of the files since they were asked for last. */
typedef enum kw_tls_news {
  KW_TLS_NO_NEWS,
  KW_TLS_FILES_CHANGED, /* files that have changed are used */
  KW_TLS_FILES_FAILED   /* files that have changed cannot be used, see kw_tls_context_trouble */
} kw_tls_news;

/* Returns the news, and forgets them. The same trouble is reported once. */
kw_tls_news kw_tls_context_take_news(kw_tls_context *context);

/* Returns the own certificate of a context, which lives until the context is built anew; or NULL. */
X509 *kw_tls_context_certificate(const kw_tls_context *context);

/* The other end of one channel, for the callbacks of OpenSSL. All zero at first. */
typedef struct kw_tls_remote {
  kw_tls_context *context; /* retained */
  char *name;              /* of a server: what its certificate has to be for; or NULL */
  char *place; /* of a server: its name and `place`, where sessions are kept under; or NULL */
  kw_tls_failure failure;
} kw_tls_remote;

/* Returns a new SSL for one channel, after a refresh, without BIOs; or NULL with remote->failure set. `remote` must
 * live as long as the SSL, and stay where it is. For a client, `host` and `place` are those of kw_tls; a server has
 * NULL. */
SSL *kw_tls_context_open(kw_tls_context *context, const char *host, const char *place,
                         kw_tls_remote *remote);

void kw_tls_remote_drop(kw_tls_remote *remote);

/* Returns "server" or "client": who is at the other end. */
const char *kw_tls_remote_role(const kw_tls_remote *remote);

#endif
