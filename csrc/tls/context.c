/* SPDX-License-Identifier: MIT */
#include <time.h>
#include <unistd.h>

#include "tls/context.h"

#include "base/mem.h"
#include "tls/suites.h"

/* A list of protocols, each after its length. A server chooses the first one that the client offers. */
#define ALPN "\2h2\10http/1.1"
#define ALPN_H2 3        /* bytes of the first one */
#define CERT_LIST 65536  /* bytes of the certificates that the other side may send */
#define CERT_DEPTH 10    /* certificates between that of the other side and its authority */
#define SECURITY_LEVEL 2 /* OpenSSL's: keys of 112 bits of security, for example RSA of 2048 bits */
#define TICKET_KEYS 80   /* bytes of the keys of tickets, as OpenSSL defines them */

/* A session that is stored for resumption. */
typedef struct kept {
  char *cache_key; /* NULL: the slot is free */
  SSL_SESSION *session;
} kept;

struct kw_tls_context {
  unsigned refs;
  bool is_server;
  bool is_unverified;
  bool takes_http1;
  bool refuses_h2;
  bool wants_client_cert;
  kw_tls_pem ca, cert, key, crl;
  char *server_name, *allowed_hosts, *cipher_suites; /* or NULL */
  int min_version, max_version;                      /* 0: not given */

  SSL_CTX *ssl; /* from the last usable state of the files */
  kw_tls_failure trouble;
  kw_tls_news news;

  time_t ticket_keys_since; /* of a server: when it got the keys of its tickets */
  kept kept[KW_TLS_KEPT];
  size_t next_kept; /* the slot for the next new session */
  kw_tls_spare spare;
};

bool kw_tls_context_is_server(const kw_tls_context *context) {
  return context->is_server;
}

kw_tls_spare *kw_tls_context_spare(kw_tls_context *context) {
  return &context->spare;
}

const kw_tls_failure *kw_tls_context_trouble(const kw_tls_context *context) {
  return &context->trouble;
}

kw_tls_news kw_tls_context_take_news(kw_tls_context *context) {
  kw_tls_news news = context->news;
  context->news = KW_TLS_NO_NEWS;
  return news;
}

X509 *kw_tls_context_certificate(const kw_tls_context *context) {
  return SSL_CTX_get0_certificate(context->ssl);
}

const char *kw_tls_remote_role(const kw_tls_remote *remote) {
  return remote->context->is_server ? "client" : "server";
}

/* Returns a copy with a 0 at its end, or NULL if memory is short. */
static char *copy_text(const void *bytes, size_t len) {
  char *copy = kw_alloc(len + 1);
  if (copy == NULL) return NULL;
  memcpy(copy, bytes, len);
  copy[len] = 0;
  return copy;
}

/* {====== Sessions ====== */

static void forget(kept *slot) {
  kw_free(slot->cache_key);
  SSL_SESSION_free(slot->session);
  *slot = (kept){NULL, NULL};
}

static void forget_all(kw_tls_context *context) {
  for (size_t i = 0; i < KW_TLS_KEPT; i++) forget(&context->kept[i]);
}

static kept *find_kept(kw_tls_context *context, const char *cache_key) {
  for (size_t i = 0; i < KW_TLS_KEPT; i++) {
    kept *slot = &context->kept[i];
    if (slot->cache_key != NULL && strcmp(slot->cache_key, cache_key) == 0) return slot;
  }
  return NULL;
}

/* Called by OpenSSL with a client's session that can be resumed. Stores a copy, because OpenSSL marks the session of a
 * connection that was cut, and would not resume it. Returns 0: the reference is not taken over. */
static int on_new_session(SSL *ssl, SSL_SESSION *session) {
  kw_tls_remote *remote = SSL_get_app_data(ssl);
  kw_tls_context *context = remote->context;
  if (remote->cache_key == NULL || SSL_get_SSL_CTX(ssl) != context->ssl) return 0;
  SSL_SESSION *copy = SSL_SESSION_dup(session);
  if (copy == NULL) return 0;
  kept *slot = find_kept(context, remote->cache_key);
  if (slot == NULL) {
    char *cache_key = copy_text(remote->cache_key, strlen(remote->cache_key));
    if (cache_key == NULL) {
      SSL_SESSION_free(copy);
      return 0;
    }
    slot = &context->kept[context->next_kept];
    context->next_kept = (context->next_kept + 1) % KW_TLS_KEPT;
    forget(slot);
    slot->cache_key = cache_key;
  }
  SSL_SESSION_free(slot->session);
  slot->session = copy;
  return 0;
}

/* A session whose connection was ended by an alert must not be resumed. */
static bool is_voided(kw_tls_fault fault) {
  return fault == KW_TLS_ALERT || fault == KW_TLS_PROTOCOL || fault == KW_TLS_CERTIFICATE;
}

static void forget_voided(kw_tls_remote *remote) {
  if (remote->cache_key == NULL || !is_voided(remote->failure.fault)) return;
  kept *slot = find_kept(remote->context, remote->cache_key);
  if (slot != NULL) forget(slot);
}

/* }====== */

/* {====== Callbacks ====== */

/* Accepts a certificate if there is no list of its authority, and a list after its expiry. The last certificate of a
 * chain is trusted although its authority, which would be needed to verify the list, may be missing: for that
 * certificate only is_listed counts. */
static bool is_forgiven(X509_STORE_CTX *store) {
  int error = X509_STORE_CTX_get_error(store);
  int last = sk_X509_num(X509_STORE_CTX_get0_chain(store)) - 1;
  bool is_last = X509_STORE_CTX_get_error_depth(store) == last;
  bool is_about_list = X509_STORE_CTX_get0_current_crl(store) != NULL;
  if (is_last && is_about_list && error != X509_V_ERR_CERT_REVOKED) return true;
  return error == X509_V_ERR_UNABLE_TO_GET_CRL || error == X509_V_ERR_CRL_HAS_EXPIRED;
}

/* True if a list of revoked certificates of a certificate's authority has the serial number of the certificate. */
static bool is_listed(const SSL *ssl, X509 *certificate) {
  X509_REVOKED *entry;
  const STACK_OF(X509_OBJECT) *all =
      X509_STORE_get0_objects(SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl)));
  for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
    X509_CRL *list = X509_OBJECT_get0_X509_CRL(sk_X509_OBJECT_value(all, i));
    if (list != NULL && X509_CRL_get0_by_cert(list, &entry, certificate) == 1) return true;
  }
  return false;
}

/* True if the certificate that is being verified was revoked. At the other side's own certificate, also checks all
 * certificates that the other side has sent, used or not. The current certificate is then the revoked one. */
static bool is_revoked(const SSL *ssl, X509_STORE_CTX *store) {
  if (is_listed(ssl, X509_STORE_CTX_get_current_cert(store))) return true;
  if (X509_STORE_CTX_get_error_depth(store) > 0) return false;
  STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 1; i < sk_X509_num(sent); i++) {
    if (!is_listed(ssl, sk_X509_value(sent, i))) continue;
    X509_STORE_CTX_set_current_cert(store, sk_X509_value(sent, i));
    X509_STORE_CTX_set_error_depth(store, i);
    return true;
  }
  return false;
}

/* Takes the first host of a comma-separated list. Returns its length; moves *rest past it, or sets *rest to NULL after
 * the last one. */
static size_t take_host(const char **rest, const char **host) {
  *host = *rest;
  size_t len = strcspn(*host, ",");
  *rest = (*host)[len] == 0 ? NULL : *host + len + 1;
  return len;
}

/* True if a server accepts clients with this certificate. */
static bool is_allowed(const kw_tls_context *context, X509 *certificate) {
  const char *host, *rest = context->allowed_hosts;
  if (rest == NULL) return true;
  while (rest != NULL) {
    size_t len = take_host(&rest, &host);
    if (kw_tls_is_for(certificate, host, len)) return true;
  }
  return false;
}

/* Called by OpenSSL for each failed check; at the end, if no check has failed, for each certificate of the chain, that
 * of the other side last. */
static int on_verify(int is_good, X509_STORE_CTX *store) {
  const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
  kw_tls_remote *remote = SSL_get_app_data(ssl);
  if (is_good && is_revoked(ssl, store)) {
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REVOKED);
    is_good = 0;
  } else if (is_good && remote->context->is_server && X509_STORE_CTX_get_error_depth(store) == 0 &&
             !is_allowed(remote->context, X509_STORE_CTX_get_current_cert(store))) {
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    is_good = 0;
  }
  if (is_good) return 1;
  if (is_forgiven(store)) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  const char *name = remote->context->is_server ? remote->context->allowed_hosts : remote->name;
  if (remote->context->is_server && X509_STORE_CTX_get_error(store) != X509_V_ERR_HOSTNAME_MISMATCH)
    name = NULL;
  kw_tls_fail_check(&remote->failure, store, kw_tls_remote_role(remote), name == NULL ? "" : name);
  return 0;
}

static int on_protocols(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_len,
                        const unsigned char *offered, unsigned offered_len, void *unused) {
  unsigned char *found;
  (void)ssl, (void)unused;
  int rc = SSL_select_next_proto(&found, chosen_len, (const unsigned char *)ALPN, sizeof ALPN - 1,
                                 offered, offered_len);
  *chosen = found;
  return rc == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* }====== */

/* {====== Building ====== */

static bool is_given(const kw_tls_pem *pem) {
  return pem->given != NULL;
}

static bool fail_memory(kw_tls_failure *failure) {
  kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  return false;
}

/* Loads the authorities from the places where distributions keep them, if OpenSSL was built for another place. */
static bool load_system(SSL_CTX *ssl, kw_tls_failure *failure) {
  static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
                                      "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
  if (SSL_CTX_set_default_verify_paths(ssl) != 1) return fail_memory(failure);
  if (access(X509_get_default_cert_dir(), R_OK) == 0) return true;
  if (access(X509_get_default_cert_file(), R_OK) == 0) return true;
  for (size_t i = 0; i < KW_LENGTH(files); i++) {
    if (access(files[i], R_OK) == 0 && SSL_CTX_load_verify_file(ssl, files[i]) == 1) return true;
  }
  return true; /* without any authority no certificate is trusted */
}

static bool trust(SSL_CTX *ssl, X509 *authority, bool is_server) {
  if (X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), authority) != 1) return false;
  return !is_server || SSL_CTX_add_client_CA(ssl, authority) == 1;
}

/* True if certificates of the other side are verified. */
static bool verifies(const kw_tls_context *context) {
  if (!context->is_server) return !context->is_unverified;
  return context->wants_client_cert || is_given(&context->ca);
}

/* Reading the system's authorities takes about 30 ms, so they are read only if they are needed. */
static bool load_authorities(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  if (!is_given(&context->ca)) return !verifies(context) || load_system(ssl, failure);
  STACK_OF(X509) *authorities = kw_tls_pem_certificates(&context->ca, failure);
  bool ok = authorities != NULL;
  for (int i = 0; ok && i < sk_X509_num(authorities); i++)
    ok = trust(ssl, sk_X509_value(authorities, i), context->is_server);
  sk_X509_pop_free(authorities, X509_free);
  return ok || fail_memory(failure);
}

static bool load_lists(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  if (!is_given(&context->crl)) return true;
  STACK_OF(X509_CRL) *lists = kw_tls_pem_lists(&context->crl, failure);
  bool ok = lists != NULL;
  for (int i = 0; ok && i < sk_X509_CRL_num(lists); i++)
    ok = X509_STORE_add_crl(SSL_CTX_get_cert_store(ssl), sk_X509_CRL_value(lists, i)) == 1;
  sk_X509_CRL_pop_free(lists, X509_CRL_free);
  if (ok)
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ssl),
                                X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  return ok || fail_memory(failure);
}

/* The first certificate is the own one; the others lead to its authority. */
static bool use_certificates(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  STACK_OF(X509) *chain = kw_tls_pem_certificates(&context->cert, failure);
  if (chain == NULL) return false;
  X509 *own = sk_X509_shift(chain);
  bool ok = SSL_CTX_use_certificate(ssl, own) == 1;
  if (ok) ok = SSL_CTX_set1_chain(ssl, chain) == 1;
  if (!ok)
    kw_tls_fail_reason(failure, KW_TLS_FILE, "the certificates of the option cert cannot be used");
  X509_free(own);
  sk_X509_pop_free(chain, X509_free);
  return ok;
}

static bool use_key(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  char cert[400], key_name[400];
  EVP_PKEY *key = kw_tls_pem_key(&context->key, failure);
  if (key == NULL) return false;
  bool fits = X509_check_private_key(SSL_CTX_get0_certificate(ssl), key) == 1 &&
              SSL_CTX_use_PrivateKey(ssl, key) == 1;
  EVP_PKEY_free(key);
  ERR_clear_error();
  if (fits) return true;
  kw_tls_pem_print(&context->cert, cert, sizeof cert);
  kw_tls_pem_print(&context->key, key_name, sizeof key_name);
  kw_tls_fail(failure, KW_TLS_FILE, "%s has a key that does not fit the certificate in %s",
              key_name, cert);
  return false;
}

static bool load_own(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  if (!is_given(&context->cert)) return true;
  return use_certificates(context, ssl, failure) && use_key(context, ssl, failure);
}

static void set_limits(const kw_tls_context *context, SSL_CTX *ssl) {
  SSL_CTX_set_security_level(ssl, SECURITY_LEVEL);
  SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_clear_mode(ssl, SSL_MODE_AUTO_RETRY); /* a read handles one record */
  SSL_CTX_set_max_cert_list(ssl, CERT_LIST);
  SSL_CTX_set_verify_depth(ssl, CERT_DEPTH);
  SSL_CTX_set_min_proto_version(ssl,
                                context->min_version == 0 ? TLS1_2_VERSION : context->min_version);
  SSL_CTX_set_max_proto_version(ssl, context->max_version);
}

/* A server that verifies clients issues no tickets: a resumed session would not be verified. */
static void set_server(const kw_tls_context *context, SSL_CTX *ssl) {
  int mode =
      verifies(context) ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE;
  SSL_CTX_set_verify(ssl, mode, on_verify);
  SSL_CTX_set_options(ssl, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_set_alpn_select_cb(ssl, on_protocols, NULL);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF); /* tickets need none */
  SSL_CTX_set_num_tickets(ssl, verifies(context) ? 0 : 1);
  if (verifies(context)) SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
}

static bool set_client(const kw_tls_context *context, SSL_CTX *ssl) {
  SSL_CTX_set_verify(ssl, verifies(context) ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                     verifies(context) ? on_verify : NULL);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(ssl, on_new_session);
  unsigned from = context->refuses_h2 ? ALPN_H2 : 0;
  unsigned to = context->takes_http1 ? sizeof ALPN - 1 : ALPN_H2;
  return SSL_CTX_set_alpn_protos(ssl, (const unsigned char *)ALPN + from, to - from) == 0;
}

static bool fill(kw_tls_context *context, SSL_CTX *ssl, kw_tls_failure *failure) {
  kw_slice suites =
      context->cipher_suites == NULL ? kw_slice_of("", 0) : kw_slice_text(context->cipher_suites);
  X509_VERIFY_PARAM *param = SSL_CTX_get0_param(ssl);
  set_limits(context, ssl);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN); /* any given one is trusted */
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                             X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (context->is_server) {
    set_server(context, ssl);
  } else if (!set_client(context, ssl)) {
    return fail_memory(failure);
  }
  return kw_tls_suites_apply(ssl, suites, failure) && load_own(context, ssl, failure) &&
         load_authorities(context, ssl, failure) && load_lists(context, ssl, failure);
}

/* Builds OpenSSL's context from the options and the current files. */
static SSL_CTX *build(kw_tls_context *context, kw_tls_failure *failure) {
  ERR_clear_error();
  OSSL_LIB_CTX *library = kw_tls_library();
  const SSL_METHOD *method = context->is_server ? TLS_server_method() : TLS_client_method();
  SSL_CTX *ssl = library == NULL ? NULL : SSL_CTX_new_ex(library, NULL, method);
  bool ok = ssl != NULL ? fill(context, ssl, failure) : fail_memory(failure);
  ERR_clear_error();
  if (ok) return ssl;
  SSL_CTX_free(ssl);
  return NULL;
}

static bool has_changed(kw_tls_context *context) {
  return kw_tls_pem_has_changed(&context->ca) || kw_tls_pem_has_changed(&context->cert) ||
         kw_tls_pem_has_changed(&context->key) || kw_tls_pem_has_changed(&context->crl);
}

static bool is_same_trouble(const kw_tls_failure *a, const kw_tls_failure *b) {
  return a->fault == b->fault && strcmp(a->text, b->text) == 0;
}

/* If memory was short when files were read, they have to be read again. */
static bool refresh(kw_tls_context *context) {
  kw_tls_failure before = context->trouble;
  if (!has_changed(context) && before.fault != KW_TLS_MEMORY) return before.fault == KW_TLS_NONE;
  context->trouble.fault = KW_TLS_NONE;
  SSL_CTX *ssl = build(context, &context->trouble);
  if (ssl == NULL) {
    if (!is_same_trouble(&before, &context->trouble)) context->news = KW_TLS_FILES_FAILED;
    return false;
  }
  SSL_CTX_free(context->ssl);
  context->ssl = ssl;
  context->news = KW_TLS_FILES_CHANGED;
  forget_all(context);
  return true;
}

bool kw_tls_context_offers(const kw_tls_context *context, bool is_h2) {
  return is_h2 ? !context->refuses_h2 : context->takes_http1;
}

bool kw_tls_context_refresh(kw_tls_context *context) {
  if (!kw_tls_enter()) {
    context->trouble.fault = KW_TLS_NONE;
    kw_tls_fail_ending(&context->trouble);
    return false;
  }
  bool ok = refresh(context);
  kw_tls_leave();
  return ok;
}

/* }====== */

/* {====== Options ====== */

/* True if each text between the commas is a host. */
static bool are_hosts(kw_slice hosts) {
  char host[KW_TLS_NAME];
  for (size_t from = 0, to = 0; to <= hosts.len; to++) {
    if (to < hosts.len && hosts.data[to] != ',') continue;
    if (!kw_tls_read_host((const char *)hosts.data + from, to - from, host)) return false;
    from = to + 1;
  }
  return true;
}

#define ONLY_WITH_CLIENTS " has an effect only with 'tls.ca' or 'tls.client_cert_auth'"

/* Returns the rule that the options break, as a sentence; or NULL. */
static const char *broken_rule(const kw_tls_options *options) {
  int least = kw_tls_version_of(options->min_version);
  int greatest = kw_tls_version_of(options->max_version);
  kw_slice name = options->server_name;
  char host[KW_TLS_NAME];
  if ((options->cert.len == 0) != (options->key.len == 0))
    return "options 'tls.cert' and 'tls.key' must be given together";
  if (least < 0) return "option 'tls.min_version' must be 'TLS1.2' or 'TLS1.3'";
  if (greatest < 0) return "option 'tls.max_version' must be 'TLS1.2' or 'TLS1.3'";
  if (greatest > 0 && least > greatest)
    return "option 'tls.min_version' is above 'tls.max_version'";
  if (name.len >= KW_TLS_NAME) return "option 'tls.server_name' is too long";
  if (name.len > 0 && !kw_tls_read_host((const char *)name.data, name.len, host))
    return "option 'tls.server_name' must be an address, or a name that does not begin with a dot";
  if (options->allowed_hosts.len > 0 && !are_hosts(options->allowed_hosts))
    return "option 'tls.allowed_hostname' must be a list, separated by commas, of addresses and "
           "names that do not begin with a dot";
  if (!options->is_server || options->wants_client_cert || options->ca.len > 0) return NULL;
  if (options->allowed_hosts.len > 0) return "option 'tls.allowed_hostname'" ONLY_WITH_CLIENTS;
  return options->crl.len > 0 ? "option 'tls.crl'" ONLY_WITH_CLIENTS : NULL;
}

static bool check_rules(const kw_tls_options *options, kw_tls_failure *failure) {
  const char *rule = broken_rule(options);
  if (rule != NULL) kw_tls_fail(failure, KW_TLS_OPTION, "%s", rule);
  return failure->fault == KW_TLS_NONE;
}

bool kw_tls_context_check(const kw_tls_options *options, kw_tls_failure *failure) {
  kw_tls_options suites = {.is_unverified = true,
                           .cipher_suites = options->cipher_suites,
                           .min_version = options->min_version,
                           .max_version = options->max_version};
  kw_tls_context *context =
      check_rules(options, failure) ? kw_tls_context_new(&suites, failure) : NULL;
  if (context != NULL) kw_tls_context_release(context);
  return context != NULL;
}

static bool copy_slice(char **to, kw_slice from) {
  *to = from.len == 0 ? NULL : copy_text(from.data, from.len);
  return *to != NULL || from.len == 0;
}

static bool copy_options(kw_tls_context *context, const kw_tls_options *options) {
  context->is_server = options->is_server;
  context->is_unverified = options->is_unverified;
  context->takes_http1 = options->takes_http1;
  context->refuses_h2 = options->refuses_h2;
  context->wants_client_cert = options->wants_client_cert;
  context->min_version = kw_tls_version_of(options->min_version);
  context->max_version = kw_tls_version_of(options->max_version);
  return kw_tls_pem_init(&context->ca, "ca", options->ca) &&
         kw_tls_pem_init(&context->cert, "cert", options->cert) &&
         kw_tls_pem_init(&context->key, "key", options->key) &&
         kw_tls_pem_init(&context->crl, "crl", options->crl) &&
         copy_slice(&context->server_name, options->server_name) &&
         copy_slice(&context->allowed_hosts, options->allowed_hosts) &&
         copy_slice(&context->cipher_suites, options->cipher_suites);
}

kw_tls_context *kw_tls_context_new(const kw_tls_options *options, kw_tls_failure *failure) {
  if (options->is_server && options->cert.len == 0)
    kw_tls_fail(failure, KW_TLS_OPTION, "option 'tls' must have 'cert' and 'key'");
  if (!check_rules(options, failure)) return NULL;
  kw_tls_context *context = kw_alloc_zeroed(sizeof *context);
  if (context == NULL) {
    fail_memory(failure);
    return NULL;
  }
  context->refs = 1;
  if (!copy_options(context, options)) {
    fail_memory(failure);
  } else if (!kw_tls_enter()) {
    kw_tls_fail_ending(failure);
  } else {
    context->ssl = build(context, failure);
    kw_tls_leave();
  }
  if (context->ssl != NULL) return context;
  kw_tls_context_release(context);
  return NULL;
}

kw_tls_context *kw_tls_context_retain(kw_tls_context *context) {
  context->refs++;
  return context;
}

/* During exit nothing is freed. */
void kw_tls_context_release(kw_tls_context *context) {
  if (--context->refs > 0 || !kw_tls_enter()) return;
  ERR_set_mark();
  forget_all(context);
  SSL_CTX_free(context->ssl);
  ERR_pop_to_mark();
  kw_tls_leave();
  kw_tls_pem_drop(&context->ca);
  kw_tls_pem_drop(&context->cert);
  kw_tls_pem_drop(&context->key);
  kw_tls_pem_drop(&context->crl);
  kw_free(context->server_name);
  kw_free(context->allowed_hosts);
  kw_free(context->cipher_suites);
  kw_free(context->spare.block);
  kw_free(context);
}

/* }====== */

/* {====== Channels ====== */

/* Makes OpenSSL check the certificate of the server for remote->name, and send that name to the server (SNI), unless it
 * is an address. */
static bool set_name(SSL *ssl, const kw_tls_remote *remote) {
  X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
  if (kw_tls_is_address(remote->name))
    return X509_VERIFY_PARAM_set1_ip_asc(param, remote->name) == 1;
  return SSL_set_tlsext_host_name(ssl, remote->name) == 1 &&
         X509_VERIFY_PARAM_set1_host(param, remote->name, 0) == 1;
}

/* Returns the key under which a session is stored: a cache key has one session for each server name. */
static char *join(const char *name, const char *cache_key) {
  size_t len = strlen(name), cache_key_len = strlen(cache_key);
  char *both = kw_alloc(len + cache_key_len + 2);
  if (both == NULL) return NULL;
  memcpy(both, name, len);
  both[len] = '\n';
  memcpy(both + len + 1, cache_key, cache_key_len + 1);
  return both;
}

/* Copies the names of the server. Without a host, which a client that trusts any server does not need, the name is
 * "". */
static bool note_names(kw_tls_remote *remote, const char *host, const char *cache_key) {
  char name[KW_TLS_NAME] = "";
  if (host[0] != 0 && !kw_tls_read_host(host, strlen(host), name)) {
    kw_tls_fail(&remote->failure, KW_TLS_OPTION, "'%s' is not a valid server name", host);
    return false;
  }
  remote->name = copy_text(name, strlen(name));
  remote->cache_key = remote->name == NULL ? NULL : join(remote->name, cache_key);
  return remote->cache_key != NULL || fail_memory(&remote->failure);
}

/* Verifies the certificates of the session that `ssl` will resume, like a full handshake does. */
static bool is_still_good(SSL *ssl) {
  kw_tls_remote *remote = SSL_get_app_data(ssl);
  STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
  X509_STORE_CTX *store = X509_STORE_CTX_new_ex(kw_tls_library(), NULL);
  bool ok = chain != NULL && store != NULL &&
            X509_STORE_CTX_init(store, SSL_CTX_get_cert_store(SSL_get_SSL_CTX(ssl)),
                                sk_X509_value(chain, 0), chain) == 1 &&
            X509_STORE_CTX_set_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx(), ssl) == 1 &&
            X509_STORE_CTX_set_default(store, "ssl_server") == 1 &&
            X509_VERIFY_PARAM_set1(X509_STORE_CTX_get0_param(store), SSL_get0_param(ssl)) == 1;
  if (ok) {
    X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(store), SECURITY_LEVEL);
    X509_STORE_CTX_set_verify_cb(store, on_verify);
    ok = X509_verify_cert(store) == 1;
  }
  X509_STORE_CTX_free(store);
  remote->failure.fault = KW_TLS_NONE; /* the server may have a new certificate by now */
  return ok;
}

/* A TLS 1.3 ticket is used once: an observer who sees it twice would know that both connections belong to one
 * client. */
static void resume(kw_tls_context *context, SSL *ssl, const char *cache_key) {
  kept *slot = find_kept(context, cache_key);
  if (slot == NULL || slot->session == NULL) return;
  bool can_be = SSL_SESSION_is_resumable(slot->session) == 1;
  SSL_SESSION *copy = can_be ? SSL_SESSION_dup(slot->session) : NULL;
  bool is_set = copy != NULL && SSL_set_session(ssl, copy) == 1;
  bool is_usable = is_set && (context->is_unverified || is_still_good(ssl));
  if (!is_usable) SSL_set_session(ssl, NULL);
  SSL_SESSION_free(copy);
  if (!is_usable || SSL_SESSION_get_protocol_version(slot->session) >= TLS1_3_VERSION) forget(slot);
}

static bool prepare_client(kw_tls_context *context, SSL *ssl, kw_tls_remote *remote,
                           const char *host, const char *cache_key) {
  if (strlen(host) >= KW_TLS_NAME || strlen(cache_key) >= KW_TLS_NAME) {
    kw_tls_fail(&remote->failure, KW_TLS_OPTION, "the name of the server is too long");
    return false;
  }
  if (!note_names(remote, context->server_name != NULL ? context->server_name : host, cache_key))
    return false;
  if (remote->name[0] == 0 && !context->is_unverified) {
    kw_tls_fail(&remote->failure, KW_TLS_OPTION,
                "there is no server name that the server's certificate could be checked for: set "
                "the option server_name");
    return false;
  }
  if (remote->name[0] != 0 && !set_name(ssl, remote)) {
    kw_tls_fail_reason(&remote->failure, KW_TLS_OPTION, "the name of the server cannot be used");
    return false;
  }
  resume(context, ssl, remote->cache_key);
  return true;
}

/* Replaces the keys of the tickets of a server when they are KW_TLS_TICKET_LIFE old, or the clock was set back. */
static bool renew_ticket_keys(kw_tls_context *context, kw_tls_failure *failure) {
  unsigned char keys[TICKET_KEYS];
  time_t now = time(NULL), since = context->ticket_keys_since;
  if (now >= since && now - since < KW_TLS_TICKET_LIFE) return true;
  bool ok = RAND_priv_bytes_ex(kw_tls_library(), keys, sizeof keys, 0) == 1 &&
            SSL_CTX_set_tlsext_ticket_keys(context->ssl, keys, sizeof keys) == 1;
  OPENSSL_cleanse(keys, sizeof keys);
  if (ok) context->ticket_keys_since = now;
  return ok || fail_memory(failure);
}

SSL *kw_tls_context_open(kw_tls_context *context, const char *host, const char *cache_key,
                         kw_tls_remote *remote) {
  remote->context = kw_tls_context_retain(context);
  kw_tls_context_refresh(context);
  ERR_clear_error();
  SSL *ssl = SSL_new(context->ssl);
  bool ok = ssl != NULL && SSL_set_app_data(ssl, remote) == 1;
  if (!ok) fail_memory(&remote->failure);
  if (ok)
    ok = context->is_server ? renew_ticket_keys(context, &remote->failure)
                            : prepare_client(context, ssl, remote, host, cache_key);
  ERR_clear_error();
  if (ok) return ssl;
  SSL_free(ssl);
  return NULL;
}

void kw_tls_remote_drop(kw_tls_remote *remote) {
  forget_voided(remote);
  kw_free(remote->name);
  kw_free(remote->cache_key);
  if (remote->context != NULL) kw_tls_context_release(remote->context);
}

/* }====== */
