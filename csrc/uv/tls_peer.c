/* SPDX-License-Identifier: MIT */
#include "uv/tls_peer.h"

#include "base/clock.h"
#include "base/mem.h"

#define PIECES 64 /* limit of pieces of the inner peer in one record */

_Static_assert(KW_READ_BYTES <= KW_TLS_INPUT, "a channel without input has room for one read");

kw_tls_peer *kw_tls_peer_new(kw_loop *loop, const kw_tls *tls, kw_tls_channel *channel,
                             const kw_peer_face *face) {
  kw_tls_peer *peer = kw_alloc(sizeof *peer);
  if (peer == NULL) return NULL;
  *peer = (kw_tls_peer){.tls = tls, .channel = channel, .face = face, .loop = loop};
  return peer;
}

void kw_tls_peer_free(kw_tls_peer *peer) {
  peer->tls->close(peer->channel);
  kw_free(peer);
}

static unsigned state_of(const kw_tls_peer *peer) {
  return peer->tls->state(peer->channel);
}

static bool inner_wants_bytes(const kw_tls_peer *peer) {
  return (peer->face->state(peer->inner) & KW_PEER_WANTS_BYTES) != 0;
}

static bool inner_is_done(const kw_tls_peer *peer) {
  return (peer->face->state(peer->inner) & KW_PEER_IS_DONE) != 0;
}

static bool has_failed_with(const kw_tls_peer *peer, kw_tls_fault fault) {
  return peer->tls->failure(peer->channel)->fault == fault;
}

/* {====== Reading ====== */

static bool is_turn_over(const kw_tls_peer *peer) {
  return kw_clock_ns() >= peer->loop->turn_until;
}

/* Decrypts queued ciphertext and then the input, and feeds the inner peer, until that wants no more bytes, nothing is
 * left, or the turn of the connection is over. The turn is limited because a record without plaintext, for example a
 * key update, costs more than its size suggests. */
static void decrypt(kw_tls_peer *peer, kw_tls_input *input, int64_t now) {
  char *text = peer->loop->text_buffer;
  while (inner_wants_bytes(peer)) {
    size_t before = input->len;
    size_t len = peer->tls->read_from(peer->channel, input, text, KW_TEXT_BYTES);
    if (len > 0) {
      peer->face->feed(peer->inner, text, len, now);
    } else if (input->len == before && (state_of(peer) & KW_TLS_MAY_READ) == 0) {
      return;
    }
    if (is_turn_over(peer)) return;
  }
}

/* Reports the end of the stream to the inner peer, once. */
static void pass_end(kw_tls_peer *peer, int64_t now) {
  bool is_end = (state_of(peer) & KW_TLS_GOT_END) != 0;
  if (peer->got_end || (!is_end && !has_failed_with(peer, KW_TLS_CUT))) return;
  peer->got_end = true;
  if (is_end) {
    peer->face->feed(peer->inner, NULL, 0, now);
  } else {
    peer->face->cut(peer->inner, now);
  }
}

static void read_open(kw_tls_peer *peer, kw_tls_input input, int64_t now) {
  decrypt(peer, &input, now);
  if (input.len > 0) {
    size_t taken = peer->tls->feed(peer->channel, input.bytes, input.len);
    assert(taken == input.len); /* the socket is read only if no ciphertext waits in the channel */
    (void)taken;
  }
  pass_end(peer, now);
}

static void feed(void *self, const void *bytes, size_t len, int64_t now) {
  kw_tls_peer *peer = self;
  if (len > 0) peer->got_bytes = true;
  if (len == 0 || !peer->is_open) peer->tls->feed(peer->channel, bytes, len);
  if (peer->is_open) read_open(peer, (kw_tls_input){bytes, len}, now);
}

/* }====== */

/* {====== Working ====== */

bool kw_tls_peer_has_work(const kw_tls_peer *peer) {
  unsigned state = state_of(peer);
  if ((state & KW_TLS_HAS_WORK) != 0) return true;
  return (state & KW_TLS_MAY_READ) != 0 && inner_wants_bytes(peer);
}

bool kw_tls_peer_work(kw_tls_peer *peer) {
  if (peer->is_open) {
    read_open(peer, (kw_tls_input){NULL, 0}, kw_loop_now(peer->loop));
    return false;
  }
  peer->tls->step(peer->channel);
  peer->is_open = (state_of(peer) & KW_TLS_IS_OPEN) != 0;
  return peer->is_open;
}

/* }====== */

/* {====== Writing ====== */

/* Copies pieces into `text`, up to KW_TEXT_BYTES. Returns the length. */
static size_t gather(char *text, const struct iovec *pieces, size_t n) {
  size_t len = 0;
  for (size_t i = 0; i < n && len < KW_TEXT_BYTES; i++) {
    size_t part = kw_min_size(pieces[i].iov_len, KW_TEXT_BYTES - len);
    memcpy(text + len, pieces[i].iov_base, part);
    len += part;
  }
  return len;
}

/* Encrypts one record of the inner peer's pending bytes. A large piece is not copied. Returns how many bytes were
 * taken. */
static size_t encrypt_record(kw_tls_peer *peer, const struct iovec *pieces, size_t n) {
  if (pieces[0].iov_len >= KW_TEXT_BYTES)
    return peer->tls->write(peer->channel, pieces[0].iov_base, KW_TEXT_BYTES);
  size_t len = gather(peer->loop->text_buffer, pieces, n);
  return peer->tls->write(peer->channel, peer->loop->text_buffer, len);
}

/* Encrypts as much as may wait for the socket. When the inner peer is done, close_notify follows its last bytes. */
static void encrypt(kw_tls_peer *peer) {
  struct iovec pieces[PIECES];
  while ((state_of(peer) & KW_TLS_WANTS_TEXT) != 0) {
    size_t n = peer->face->pending(peer->inner, pieces, PIECES);
    if (n == 0) {
      if (inner_is_done(peer)) peer->tls->finish(peer->channel);
      return;
    }
    size_t taken = encrypt_record(peer, pieces, n);
    if (taken == 0) return;
    peer->face->wrote(peer->inner, taken);
  }
}

static size_t pending(void *self, struct iovec *pieces, size_t max) {
  kw_tls_peer *peer = self;
  if (peer->is_open) encrypt(peer);
  return peer->tls->pending(peer->channel, pieces, max);
}

static void wrote(void *self, size_t bytes) {
  kw_tls_peer *peer = self;
  peer->tls->wrote(peer->channel, bytes);
}

/* }====== */

static unsigned state(const void *self) {
  const kw_tls_peer *peer = self;
  unsigned own = state_of(peer);
  if ((own & KW_TLS_IS_DONE) != 0 || inner_is_done(peer)) return KW_PEER_IS_DONE;
  if ((own & KW_TLS_WANTS_BYTES) == 0 || (own & (KW_TLS_HAS_WORK | KW_TLS_MAY_READ)) != 0) return 0;
  return !peer->is_open || inner_wants_bytes(peer) ? KW_PEER_WANTS_BYTES : 0;
}

static void step(void *self, int64_t now) {
  kw_tls_peer *peer = self;
  peer->face->step(peer->inner, now);
}

const char *kw_tls_peer_refusal(const kw_tls_peer *peer) {
  const kw_tls_failure *failure = peer->tls->failure(peer->channel);
  if (peer->is_open || failure->fault == KW_TLS_NONE) return NULL;
  return failure->fault == KW_TLS_CUT && !peer->got_bytes ? NULL : failure->text;
}

/* The channel's failure is the best reason, unless the connection was merely cut. */
static void close_peer(void *self, const char *why) {
  kw_tls_peer *peer = self;
  const kw_tls_failure *failure = peer->tls->failure(peer->channel);
  bool is_cut = peer->is_open && failure->fault == KW_TLS_CUT;
  peer->face->close(peer->inner, failure->fault == KW_TLS_NONE || is_cut ? why : failure->text);
  kw_tls_peer_free(peer);
}

/* The channel itself finds that close_notify is missing. */
static void cut(void *self, int64_t now) {
  feed(self, NULL, 0, now);
}

const kw_peer_face kw_tls_peer_face = {.feed = feed,
                                       .pending = pending,
                                       .wrote = wrote,
                                       .state = state,
                                       .step = step,
                                       .close = close_peer,
                                       .cut = cut};
