/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "tls/channel.h"

#include "base/mem.h"
#include "tls/buffer.h"
#include "tls/plain.h"

#define RECORD 16384  /* bytes of plaintext in one record */
#define LARGE 8192    /* after so many bytes of plaintext more are likely to follow */
#define ANSWERS 65536 /* nothing is read with so many bytes more than KW_TLS_OUTPUT pending */

struct kw_tls_channel {
  SSL *ssl;
  kw_tls_remote remote;
  kw_tls_buffer in;
  kw_tls_input lent; /* follows `in`, during kw_tls_channel_read_from */
  kw_tls_buffer out;
  char *identity; /* see kw_tls.identity */
  size_t identity_len;

  size_t looked_at;   /* bytes of `in` that were too few to recognize HTTP */
  bool is_recognized; /* the first bytes are not HTTP */
  bool has_begun;     /* the handshake */
  bool is_open;
  bool got_eof;
  bool got_end;     /* close_notify */
  bool has_rest;    /* OpenSSL holds plaintext of a record that was read in part */
  bool is_finished; /* `finish` was called */
  bool is_starved;  /* the BIO had no memory */
};

static bool has_failed(const kw_tls_channel *channel) {
  return channel->remote.failure.fault != KW_TLS_NONE;
}

static bool is_done(const kw_tls_channel *channel) {
  return channel->is_finished || has_failed(channel);
}

/* {====== The BIO between OpenSSL and the two buffers ====== */

static int take_lent(kw_tls_channel *channel, char *to, size_t cap) {
  size_t n = kw_min_size(channel->lent.len, cap);
  memcpy(to, channel->lent.bytes, n);
  channel->lent.bytes += n;
  channel->lent.len -= n;
  return (int)n;
}

static int bio_read(BIO *bio, char *to, int cap) {
  kw_tls_channel *channel = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  if (channel->in.len == 0 && channel->lent.len > 0) return take_lent(channel, to, (size_t)cap);
  if (channel->in.len == 0) {
    if (!channel->got_eof) BIO_set_retry_read(bio);
    return channel->got_eof ? 0 : -1;
  }
  size_t n = kw_min_size(channel->in.len, (size_t)cap);
  memcpy(to, kw_tls_buffer_bytes(&channel->in), n);
  kw_tls_buffer_skip(&channel->in, n);
  return (int)n;
}

static int bio_write(BIO *bio, const char *bytes, int len) {
  kw_tls_channel *channel = BIO_get_data(bio);
  BIO_clear_retry_flags(bio);
  if (kw_tls_buffer_add(&channel->out, bytes, (size_t)len)) return len;
  channel->is_starved = true;
  return -1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer) {
  const kw_tls_channel *channel = BIO_get_data(bio);
  (void)number, (void)pointer;
  if (command == BIO_CTRL_EOF) return channel->got_eof && channel->in.len + channel->lent.len == 0;
  return command == BIO_CTRL_FLUSH;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static BIO_METHOD *bio_method;

static BIO_METHOD *make_method(void) {
  BIO_METHOD *made = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "keywatch");
  if (made == NULL) return NULL;
  BIO_meth_set_read(made, bio_read);
  BIO_meth_set_write(made, bio_write);
  BIO_meth_set_ctrl(made, bio_ctrl);
  return made;
}

/* Returns the methods of our BIOs, which exist until the process ends; or NULL if memory is short. */
static const BIO_METHOD *own_method(void) {
  pthread_mutex_lock(&mutex);
  if (bio_method == NULL) bio_method = make_method();
  const BIO_METHOD *result = bio_method;
  pthread_mutex_unlock(&mutex);
  return result;
}

static bool attach_bio(kw_tls_channel *channel) {
  const BIO_METHOD *method = own_method();
  BIO *bio = method == NULL ? NULL : BIO_new(method);
  if (bio == NULL) return false;
  BIO_set_data(bio, channel);
  BIO_set_init(bio, 1);
  SSL_set_bio(channel->ssl, bio, bio);
  return true;
}

/* }====== */

/* {====== Opening and closing ====== */

static kw_tls_channel *fail_memory(kw_tls_failure *failure) {
  kw_tls_fail(failure, KW_TLS_MEMORY, "not enough memory");
  return NULL;
}

/* `begin` sets the side of the handshake: SSL_set_accept_state or SSL_set_connect_state. */
static kw_tls_channel *open_entered(kw_tls_context *context, const char *host,
                                    const char *cache_key, void (*begin)(SSL *ssl),
                                    kw_tls_failure *failure) {
  kw_tls_channel *channel = kw_alloc_zeroed(sizeof *channel);
  if (channel == NULL) return fail_memory(failure);
  channel->ssl = kw_tls_context_open(context, host, cache_key, &channel->remote);
  if (channel->ssl != NULL && !attach_bio(channel))
    kw_tls_fail(&channel->remote.failure, KW_TLS_MEMORY, "not enough memory");
  ERR_clear_error();
  if (!has_failed(channel)) {
    begin(channel->ssl);
    return channel;
  }
  *failure = channel->remote.failure;
  kw_tls_channel_close(channel);
  return NULL;
}

static kw_tls_channel *open_channel(kw_tls_context *context, const char *host,
                                    const char *cache_key, void (*begin)(SSL *ssl),
                                    kw_tls_failure *failure) {
  if (!kw_tls_enter()) {
    kw_tls_fail_ending(failure);
    return NULL;
  }
  kw_tls_channel *channel = open_entered(context, host, cache_key, begin, failure);
  kw_tls_leave();
  return channel;
}

kw_tls_channel *kw_tls_channel_accept(kw_tls_context *context, kw_tls_failure *failure) {
  failure->fault = KW_TLS_NONE;
  if (!kw_tls_context_is_server(context)) {
    kw_tls_fail(failure, KW_TLS_OPTION, "this is a context of clients");
    return NULL;
  }
  return open_channel(context, NULL, NULL, SSL_set_accept_state, failure);
}

kw_tls_channel *kw_tls_channel_connect(kw_tls_context *context, const char *host,
                                       const char *cache_key, kw_tls_failure *failure) {
  failure->fault = KW_TLS_NONE;
  if (kw_tls_context_is_server(context)) {
    kw_tls_fail(failure, KW_TLS_OPTION, "this is a context of servers");
    return NULL;
  }
  return open_channel(context, host, cache_key, SSL_set_connect_state, failure);
}

/* OpenSSL would not resume a TLS 1.2 session whose connection has ended without close_notify. During exit nothing is
 * freed. */
void kw_tls_channel_close(kw_tls_channel *channel) {
  if (!kw_tls_enter()) return;
  if (channel->ssl != NULL && !has_failed(channel))
    SSL_set_shutdown(channel->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  ERR_set_mark();
  SSL_free(channel->ssl);
  kw_tls_remote_drop(&channel->remote);
  ERR_pop_to_mark();
  kw_tls_leave();
  kw_tls_buffer_drop(&channel->in);
  kw_tls_buffer_drop(&channel->out);
  kw_free(channel->identity);
  kw_free(channel);
}

/* }====== */

/* {====== Failures ====== */

static const char *role(const kw_tls_channel *channel) {
  return kw_tls_remote_role(&channel->remote);
}

/* Handles the error `rc` of an OpenSSL function: fails the channel, or notes its end. Waiting for bytes is not a
 * failure. */
static void handle_error(kw_tls_channel *channel, int rc) {
  if (channel->is_starved) {
    kw_tls_fail(&channel->remote.failure, KW_TLS_MEMORY, "not enough memory");
  } else if (!has_failed(channel)) {
    int error = SSL_get_error(channel->ssl, rc);
    if (error == SSL_ERROR_ZERO_RETURN) {
      channel->got_end = true;
    } else if (error != SSL_ERROR_WANT_READ) {
      kw_tls_fail_queue(&channel->remote.failure, role(channel));
    }
  }
  ERR_clear_error();
  if (has_failed(channel)) kw_tls_buffer_drop(&channel->in);
}

void kw_tls_channel_lose(kw_tls_channel *channel) {
  kw_tls_fail(&channel->remote.failure, KW_TLS_MEMORY, "not enough memory");
  kw_tls_buffer_drop(&channel->in);
}

const kw_tls_failure *kw_tls_channel_failure(const kw_tls_channel *channel) {
  return &channel->remote.failure;
}

/* }====== */

/* {====== Handshake ====== */

/* Returns true if the first bytes are TLS. Fails the channel if they are HTTP. */
static bool recognize(kw_tls_channel *channel) {
  bool is_server = kw_tls_context_is_server(channel->remote.context);
  kw_slice bytes =
      kw_slice_of(channel->in.len == 0 ? NULL : kw_tls_buffer_bytes(&channel->in), channel->in.len);
  kw_tls_plain kind = is_server ? kw_tls_recognize_client(bytes) : kw_tls_recognize_server(bytes);
  channel->looked_at = bytes.len;
  if (kind == KW_TLS_IS_UNCLEAR && !channel->got_eof) return false;
  channel->is_recognized = true;
  if (kind == KW_TLS_IS_TLS || kind == KW_TLS_IS_UNCLEAR) return true;
  kw_slice answer = is_server ? kw_tls_plain_answer(kind) : kw_slice_of("", 0);
  kw_tls_buffer_add(&channel->out, answer.data, answer.len); /* or the client gets no answer */
  kw_tls_fail(&channel->remote.failure, KW_TLS_PLAIN, "the %s speaks plain HTTP/%d, and not TLS",
              role(channel), kind == KW_TLS_IS_HTTP1 ? 1 : 2);
  kw_tls_buffer_drop(&channel->in);
  return false;
}

/* Copies a name of a subject, as UTF-8 with a 0 at its end. Returns the number of bytes. Returns 0 for a name that is
 * empty, malformed, contains a 0, or is too long: it is left out, because a part of a name is a different name. */
static size_t copy_name(X509_NAME *subject, int at, char *to, size_t room) {
  unsigned char *text;
  int len = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (len < 0) return 0;
  size_t size = (size_t)len + 1;
  bool fits = len > 0 && len < KW_TLS_NAME && size <= room && memchr(text, 0, (size_t)len) == NULL;
  if (fits) memcpy(to, text, size);
  OPENSSL_free(text);
  return fits ? size : 0;
}

/* Stores the common name and the organizations of the verified certificate. */
static void note_identity(kw_tls_channel *channel) {
  char names[KW_TLS_IDENTITY] = "";
  X509 *certificate = SSL_get0_peer_certificate(channel->ssl);
  if (certificate == NULL || SSL_get_verify_mode(channel->ssl) == SSL_VERIFY_NONE) return;
  X509_NAME *subject = X509_get_subject_name(certificate);
  int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  size_t len = at < 0 ? 0 : copy_name(subject, at, names, sizeof names);
  if (len == 0) len = 1;
  at = -1;
  while ((at = X509_NAME_get_index_by_NID(subject, NID_organizationName, at)) >= 0)
    len += copy_name(subject, at, names + len, sizeof names - len);
  channel->identity = kw_alloc(len);
  channel->is_starved = channel->identity == NULL;
  if (channel->is_starved) return;
  memcpy(channel->identity, names, len);
  channel->identity_len = len;
}

bool kw_tls_channel_has_h2(const kw_tls_channel *channel) {
  const unsigned char *protocol;
  unsigned len;
  SSL_get0_alpn_selected(channel->ssl, &protocol, &len);
  return len == 2 && memcmp(protocol, "h2", 2) == 0;
}

/* True if the protocol that was agreed on can be used. A server tells protocols apart by the first bytes. A server that
 * has chosen no protocol might not speak HTTP/2. */
static bool has_protocol(const kw_tls_channel *channel) {
  const kw_tls_context *context = channel->remote.context;
  return kw_tls_context_is_server(context) ||
         kw_tls_context_offers(context, kw_tls_channel_has_h2(channel));
}

/* Called when the handshake has succeeded. */
static void begin(kw_tls_channel *channel) {
  if (!has_protocol(channel)) {
    bool has_h2 = kw_tls_channel_has_h2(channel);
    kw_tls_fail(&channel->remote.failure, KW_TLS_PROTOCOL,
                "the %s does not speak HTTP/%s: it has not agreed to the protocol %s (ALPN)",
                role(channel), has_h2 ? "1.1" : "2", has_h2 ? "http/1.1" : "h2");
    SSL_shutdown(channel->ssl);
    return;
  }
  note_identity(channel);
  if (channel->is_starved) {
    kw_tls_channel_lose(channel);
  } else {
    channel->is_open = true;
  }
}

static bool has_work(const kw_tls_channel *channel) {
  if (is_done(channel) || channel->is_open) return false;
  bool can_begin = channel->is_recognized || channel->in.len == 0; /* not before unclear input */
  bool begins =
      can_begin && !channel->has_begun && !kw_tls_context_is_server(channel->remote.context);
  size_t known = channel->is_recognized ? 0 : channel->looked_at;
  return begins || channel->in.len > known || channel->got_eof;
}

/* A client begins the handshake at once, unless the server has sent bytes already: these are examined first. */
static void step(kw_tls_channel *channel) {
  if (!has_work(channel)) return;
  bool has_input = channel->in.len > 0 || channel->got_eof;
  if (has_input && !channel->is_recognized && !recognize(channel)) return;
  channel->has_begun = true;
  ERR_clear_error();
  int rc = SSL_do_handshake(channel->ssl);
  if (rc == 1) {
    begin(channel);
    ERR_clear_error();
  } else {
    handle_error(channel, rc);
  }
}

void kw_tls_channel_step(kw_tls_channel *channel) {
  if (!kw_tls_enter()) return;
  step(channel);
  kw_tls_leave();
}

/* }====== */

/* {====== Bytes ====== */

size_t kw_tls_channel_feed(kw_tls_channel *channel, const void *bytes, size_t len) {
  if (len == 0) channel->got_eof = true;
  if (is_done(channel) || channel->got_eof || channel->got_end) return len;
  size_t room = KW_TLS_INPUT - channel->in.len;
  size_t taken = kw_min_size(len, room);
  if (kw_tls_buffer_add(&channel->in, bytes, taken)) return taken;
  kw_tls_channel_lose(channel);
  return len;
}

/* True if the channel may read more. Reading does not wait until pending bytes are sent, because two sides that both
 * write much would deadlock. Only the answers of TLS itself (to key updates) must have space. */
static bool may_read(const kw_tls_channel *channel) {
  return channel->is_open && !is_done(channel) && !channel->got_end &&
         channel->out.len < KW_TLS_OUTPUT + ANSWERS;
}

size_t kw_tls_channel_read(kw_tls_channel *channel, void *to, size_t cap) {
  size_t len = 0;
  if (!may_read(channel) || cap == 0 || !kw_tls_enter()) return 0;
  ERR_clear_error();
  int rc = SSL_read_ex(channel->ssl, to, cap, &len);
  channel->has_rest = SSL_pending(channel->ssl) > 0;
  if (rc != 1) handle_error(channel, rc);
  kw_tls_leave();
  return rc == 1 ? len : 0;
}

size_t kw_tls_channel_read_from(kw_tls_channel *channel, kw_tls_input *input, void *to,
                                size_t cap) {
  channel->lent = *input;
  size_t len = kw_tls_channel_read(channel, to, cap);
  *input = channel->lent;
  channel->lent = (kw_tls_input){NULL, 0};
  return len;
}

size_t kw_tls_channel_write(kw_tls_channel *channel, const void *bytes, size_t len) {
  kw_tls_spare *spare = kw_tls_context_spare(channel->remote.context);
  size_t taken = 0;
  if (!channel->is_open || !kw_tls_enter()) return 0;
  ERR_clear_error();
  kw_tls_buffer_borrow(&channel->out, spare, len >= LARGE);
  while (taken < len && channel->out.len < KW_TLS_OUTPUT && !is_done(channel)) {
    size_t n = 0;
    int rc = SSL_write_ex(channel->ssl, (const char *)bytes + taken,
                          kw_min_size(len - taken, RECORD), &n);
    if (rc != 1) handle_error(channel, rc);
    taken += n;
  }
  kw_tls_leave();
  if (channel->out.len == 0) kw_tls_buffer_skip_or_return(&channel->out, 0, spare);
  return taken;
}

void kw_tls_channel_finish(kw_tls_channel *channel) {
  if (is_done(channel) || !kw_tls_enter()) return;
  ERR_clear_error();
  if (channel->is_open) SSL_shutdown(channel->ssl);
  ERR_clear_error();
  kw_tls_leave();
  channel->is_finished = true;
  kw_tls_buffer_drop(&channel->in);
}

size_t kw_tls_channel_pending(const kw_tls_channel *channel, struct iovec *pieces, size_t max) {
  if (channel->out.len == 0 || max == 0) return 0;
  pieces[0] = (struct iovec){channel->out.bytes + channel->out.from, channel->out.len};
  return 1;
}

void kw_tls_channel_wrote(kw_tls_channel *channel, size_t bytes) {
  kw_tls_buffer_skip_or_return(&channel->out, bytes, kw_tls_context_spare(channel->remote.context));
}

/* }====== */

/* {====== State ====== */

static bool has_input(const kw_tls_channel *channel) {
  return channel->in.len > 0 || channel->got_eof || channel->has_rest;
}

unsigned kw_tls_channel_state(const kw_tls_channel *channel) {
  unsigned state = channel->is_open ? KW_TLS_IS_OPEN : 0;
  if (kw_tls_is_ending()) return state;
  if (channel->got_end) state |= KW_TLS_GOT_END;
  if (is_done(channel)) return state | KW_TLS_IS_DONE;
  bool is_stuck = channel->is_open && !may_read(channel);
  if (channel->in.len < KW_TLS_INPUT && !channel->got_eof && !is_stuck) state |= KW_TLS_WANTS_BYTES;
  if (has_work(channel)) state |= KW_TLS_HAS_WORK;
  if (may_read(channel) && has_input(channel)) state |= KW_TLS_MAY_READ;
  if (channel->is_open && channel->out.len < KW_TLS_OUTPUT) state |= KW_TLS_WANTS_TEXT;
  return state;
}

const char *kw_tls_channel_identity(const kw_tls_channel *channel, size_t *len) {
  *len = channel->identity_len;
  return channel->identity;
}

kw_tls_info kw_tls_channel_info(const kw_tls_channel *channel) {
  return (kw_tls_info){.version = SSL_get_version(channel->ssl),
                       .suite = SSL_CIPHER_standard_name(SSL_get_current_cipher(channel->ssl)),
                       .name = SSL_get_servername(channel->ssl, TLSEXT_NAMETYPE_host_name),
                       .is_resumed = SSL_session_reused(channel->ssl) == 1};
}

/* }====== */
