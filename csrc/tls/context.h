/* SPDX-License-Identifier: MIT
 *
 * context: the TLS configuration that all connections of a client, or of a server, share.
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
 * A server that verifies clients sends no session tickets, so that each handshake verifies. The tickets of other
 * servers become void when the context is built anew, and after KW_TLS_TICKET_LIFE.
 */
#ifndef KW_TLS_CONTEXT_H
#define KW_TLS_CONTEXT_H

#include "tls/buffer.h"
#include "tls/pem.h"

#define KW_TLS_KEPT 16          /* sessions of a client's context */
#define KW_TLS_TICKET_LIFE 3600 /* seconds after which a server has other keys for its tickets */

/* An empty slice means that the option is not given. Slices are copied. */
typedef struct kw_tls_options {
  bool is_server;
  bool is_unverified; /* a client trusts any server */
  bool
      wants_client_cert; /* a server accepts only clients with a certificate; also the case if `ca` is given */
  kw_slice ca;   /* trusted authorities; default: those of the system */
  kw_slice cert; /* own certificate, followed by its intermediate certificates */
  kw_slice key;  /* private key of `cert` */
  kw_slice crl;  /* revocation lists, also of authorities. An outdated list still counts */
  kw_slice
      server_name; /* of a client: the name or address that the server's certificate must have */
  kw_slice
      allowed_hosts; /* of a server: clients' certificates must have one of these names and addresses,
                           * which are separated by commas */
  kw_slice cipher_suites; /* see kw_tls_suites_apply */
  kw_slice min_version;   /* "TLS1.2" (default) or "TLS1.3" */
  kw_slice max_version;
} kw_tls_options;

/* Returns true if the options break no rule, whatever is in the files: the rules stand here, and nowhere else. Else
 * sets *failure, mostly to KW_TLS_OPTION. A server may be without `cert`. */
bool kw_tls_context_check(const kw_tls_options *options, kw_tls_failure *failure);

/* Builds a context with one reference. Returns NULL with *failure set: to KW_TLS_OPTION, if the options break a rule;
 * to KW_TLS_FILE, if a file is unusable. */
kw_tls_context *kw_tls_context_new(const kw_tls_options *options, kw_tls_failure *failure);

kw_tls_context *kw_tls_context_retain(kw_tls_context *context);

/* Gives up a reference. The last one frees the context. */
void kw_tls_context_release(kw_tls_context *context);

bool kw_tls_context_is_server(const kw_tls_context *context);

/* Reads changed files. Returns false if they are unusable; see kw_tls_context_trouble. */
bool kw_tls_context_refresh(kw_tls_context *context);

/* Returns the reason why the changed files of a context are unusable, or KW_TLS_NONE. */
const kw_tls_failure *kw_tls_context_trouble(const kw_tls_context *context);

/* Returns the spare block of the channels of a context. */
kw_tls_spare *kw_tls_context_spare(kw_tls_context *context);

/* The state of the files since the last call of kw_tls_context_take_news. */
typedef enum kw_tls_news {
  KW_TLS_NO_NEWS,
  KW_TLS_FILES_CHANGED, /* changed files are in use */
  KW_TLS_FILES_FAILED   /* changed files are unusable, see kw_tls_context_trouble */
} kw_tls_news;

/* Returns the news, once. The same trouble is reported once. */
kw_tls_news kw_tls_context_take_news(kw_tls_context *context);

/* Returns the own certificate of a context, which lives until the context is built anew; or NULL. */
X509 *kw_tls_context_certificate(const kw_tls_context *context);

/* The other end of one channel, for the callbacks of OpenSSL. All zero at first. */
typedef struct kw_tls_remote {
  kw_tls_context *context; /* retained */
  char *name;              /* of a server: the name that its certificate must have; or NULL */
  char *place;             /* of a server: its name and `place`, the key of its sessions; or NULL */
  kw_tls_failure failure;
} kw_tls_remote;

/* Returns a new SSL for one channel, after a refresh, without BIOs; or NULL with remote->failure set. `remote` must
 * live as long as the SSL, and stay where it is. For a client, `host` and `place` are those of kw_tls; a server has
 * NULL. */
SSL *kw_tls_context_open(kw_tls_context *context, const char *host, const char *place,
                         kw_tls_remote *remote);

void kw_tls_remote_drop(kw_tls_remote *remote);

/* Returns the role of the other end: "server" or "client". */
const char *kw_tls_remote_role(const kw_tls_remote *remote);

#endif
