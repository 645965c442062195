/* SPDX-License-Identifier: MIT
 *
 * context: the TLS configuration that all connections of a client, or of a server, share.
 *
 * A context is built from its options and files. Each new channel checks whether a file has changed, and rebuilds the
 * context if one has; open channels keep the old one. If the new files are unusable (a key that does not match, a
 * half-written file), new channels use the old ones, and kw_tls_context_trouble returns the reason, until the files are
 * usable again.
 *
 * A client's context stores up to KW_TLS_KEPT sessions for resumption, each for one server. The certificates of a
 * session are verified again before it is resumed. A session is dropped when its connection has failed because of an
 * alert, the protocol or a certificate, but not when the connection was cut. All are dropped when the context is
 * rebuilt.
 *
 * A server that verifies clients sends no session tickets, so that each handshake verifies. The tickets of other
 * servers become invalid when the context is rebuilt, and after KW_TLS_TICKET_LIFE.
 */
#ifndef KW_TLS_CONTEXT_H
#define KW_TLS_CONTEXT_H

#include "tls/buffer.h"
#include "tls/pem.h"

#define KW_TLS_KEPT 16          /* limit of sessions of a client's context */
#define KW_TLS_TICKET_LIFE 3600 /* seconds after which a server replaces the keys of its tickets */

/* An empty slice means that the option is not given. Slices are copied. */
typedef struct kw_tls_options {
  bool is_server;
  bool is_unverified;     /* a client trusts any server */
  bool takes_http1;       /* a client offers http/1.1 (ALPN), too */
  bool refuses_h2;        /* a client does not offer h2 */
  bool wants_client_cert; /* a server accepts only clients with a certificate; `ca` implies that */
  kw_slice ca;            /* trusted authorities; default: those of the system */
  kw_slice cert;          /* own certificate, followed by its intermediate certificates */
  kw_slice key;           /* private key of `cert` */
  kw_slice crl;           /* revocation lists, also of authorities. An outdated list still counts */
  kw_slice server_name;   /* of a client: name or address that the server's certificate must have */
  kw_slice allowed_hosts; /* of a server: names and addresses, separated by commas, of which a
                             client's certificate must have one */
  kw_slice cipher_suites; /* see kw_tls_suites_apply */
  kw_slice min_version;   /* "TLS1.2" (default) or "TLS1.3" */
  kw_slice max_version;
} kw_tls_options;

/* Returns true if the options are valid, without reading the files. Else sets *failure, mostly to KW_TLS_OPTION. A
 * server may be without `cert`. */
bool kw_tls_context_check(const kw_tls_options *options, kw_tls_failure *failure);

/* Builds a context with one reference. Returns NULL with *failure set: to KW_TLS_OPTION if the options are invalid, to
 * KW_TLS_FILE if a file is unusable, to KW_TLS_MEMORY, or to KW_TLS_ENDING. */
kw_tls_context *kw_tls_context_new(const kw_tls_options *options, kw_tls_failure *failure);

/* Takes one more reference, and returns the context. */
kw_tls_context *kw_tls_context_retain(kw_tls_context *context);

/* Drops a reference. Without references the context is freed. */
void kw_tls_context_release(kw_tls_context *context);

/* True for a context of servers, false for one of clients. */
bool kw_tls_context_is_server(const kw_tls_context *context);

/* True if a client's context offers a protocol, h2 or else http/1.1. */
bool kw_tls_context_offers(const kw_tls_context *context, bool is_h2);

/* Reads changed files. Returns false if they are unusable, or if the process is in exit: see kw_tls_context_trouble. */
bool kw_tls_context_refresh(kw_tls_context *context);

/* Returns why the last refresh of a context has failed; KW_TLS_NONE: it has not. */
const kw_tls_failure *kw_tls_context_trouble(const kw_tls_context *context);

/* Returns the spare block of the channels of a context. */
kw_tls_spare *kw_tls_context_spare(kw_tls_context *context);

/* The change of the files since the last call of kw_tls_context_take_news. */
typedef enum kw_tls_news {
  KW_TLS_NO_NEWS,
  KW_TLS_FILES_CHANGED, /* changed files are in use */
  KW_TLS_FILES_FAILED   /* changed files are unusable, see kw_tls_context_trouble */
} kw_tls_news;

/* Returns the news, once. Repeated failures with the same text are reported once. */
kw_tls_news kw_tls_context_take_news(kw_tls_context *context);

/* Returns the own certificate of a context, which lives until the context is rebuilt; or NULL. */
X509 *kw_tls_context_certificate(const kw_tls_context *context);

/* The other end of one channel, for the OpenSSL callbacks. All zero at first. */
typedef struct kw_tls_remote {
  kw_tls_context *context; /* retained */
  char *name;              /* of a server: the name that its certificate must have; or NULL */
  char *
      cache_key; /* the server name and the `cache_key` of kw_tls, under which a session is stored; or NULL */
  kw_tls_failure failure;
} kw_tls_remote;

/* Refreshes the context, and returns a new SSL for one channel, without BIOs; or NULL with remote->failure set. *remote
 * must live as long as the SSL, at the same address; the caller then drops it, even after a failure. For a client,
 * `host` and `cache_key` are those of kw_tls; for a server they are NULL. */
SSL *kw_tls_context_open(kw_tls_context *context, const char *host, const char *cache_key,
                         kw_tls_remote *remote);

/* Frees the memory of *remote. After some failures of the channel, also drops the stored session of the server. */
void kw_tls_remote_drop(kw_tls_remote *remote);

/* Returns the role of the other end: "server" or "client". */
const char *kw_tls_remote_role(const kw_tls_remote *remote);

#endif
