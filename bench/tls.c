/* SPDX-License-Identifier: MIT */
#include "tls.h"

#include "connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

static SSL_CTX *context;

static _Noreturn void fail(const char *what) {
  char text[256] = "no reason is known";
  unsigned long error = ERR_get_error();
  if (error != 0) ERR_error_string_n(error, text, sizeof text);
  die("%s: %s", what, text);
}

/* One read of a socket takes many records. */
static SSL_CTX *own_context(void) {
  static const unsigned char protocols[] = "\2h2";
  if (context != NULL) return context;
  context = SSL_CTX_new(TLS_client_method());
  if (context == NULL || SSL_CTX_set_alpn_protos(context, protocols, sizeof protocols - 1) != 0)
    fail("TLS");
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, 64 * 1024);
  return context;
}

tls *tls_open(int fd) {
  SSL *t = SSL_new(own_context());
  if (t == NULL || SSL_set_fd(t, fd) != 1) fail("TLS");
  SSL_set_connect_state(t);
  return t;
}

void tls_close(tls *t) {
  SSL_free(t);
}

static tls_wait wait_of(tls *t, int rc, const char *what) {
  switch (SSL_get_error(t, rc)) {
    case SSL_ERROR_WANT_READ: return TLS_WAITS_FOR_READ;
    case SSL_ERROR_WANT_WRITE: return TLS_WAITS_FOR_WRITE;
    default: fail(what);
  }
}

tls_wait tls_shake(tls *t) {
  const unsigned char *protocol;
  unsigned len;
  ERR_clear_error();
  int rc = SSL_do_handshake(t);
  if (rc != 1) return wait_of(t, rc, "the handshake failed");
  SSL_get0_alpn_selected(t, &protocol, &len);
  if (len != 2 || memcmp(protocol, "h2", 2) != 0) die("the server does not speak h2");
  return TLS_WAITS_FOR_NOTHING;
}

ssize_t tls_read(tls *t, void *to, size_t cap, tls_wait *wait) {
  size_t n;
  ERR_clear_error();
  int rc = SSL_read_ex(t, to, cap, &n);
  if (rc == 1) return (ssize_t)n;
  if (SSL_get_error(t, rc) == SSL_ERROR_ZERO_RETURN) return 0;
  *wait = wait_of(t, rc, "cannot read from the server");
  return -1;
}

ssize_t tls_write(tls *t, const void *bytes, size_t len, tls_wait *wait) {
  size_t n;
  ERR_clear_error();
  int rc = SSL_write_ex(t, bytes, len, &n);
  if (rc == 1) return (ssize_t)n;
  *wait = wait_of(t, rc, "cannot write to the server");
  return -1;
}

void tls_finish(tls *t) {
  SSL_shutdown(t);
}
