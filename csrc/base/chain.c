/* SPDX-License-Identifier: MIT */
#include "base/chain.h"

#include "base/mem.h"

#define LEAST_ROOM 256
#define MOST_ROOM 65536
#define ROOM_BETWEEN 64 /* after a blob: usually another blob follows after a few bytes */

/* In a chain longer than LONG_CHAIN, pieces are large and have pages of their own. */
#define LONG_CHAIN KW_LIMIT(4 << 20, 4096)
#define PAGES_ROOM KW_LIMIT((1 << 20) - sizeof(kw_piece), 4096)

struct kw_piece {
  kw_piece *next;
  kw_blob *blob;     /* retained; NULL: the bytes are in `bytes` */
  const uint8_t *at; /* first byte that was not skipped */
  size_t len;
  /* Bytes charged in addition to the struct: of `bytes`, or of a blob that only the chain holds. */
  size_t size;
  size_t room;     /* free bytes after at + len */
  uint8_t bytes[]; /* empty, if there is a blob */
};

static kw_piece *add_piece(kw_chain *chain, size_t room) {
  size_t size = sizeof(kw_piece) + room;
  kw_piece *piece = room >= PAGES_ROOM ? kw_alloc_pages(size) : kw_alloc(size);
  if (piece == NULL) return NULL;
  *piece = (kw_piece){.size = room, .room = room, .at = piece->bytes};
  kw_account_charge(chain->account, sizeof *piece + room);
  if (chain->last != NULL) {
    chain->last->next = piece;
  } else {
    chain->first = piece;
  }
  chain->last = piece;
  return piece;
}

static void remove_first(kw_chain *chain) {
  kw_piece *piece = chain->first;
  chain->first = piece->next;
  if (chain->first == NULL) chain->last = NULL;
  if (piece->blob != NULL) kw_blob_release(piece->blob);
  size_t size = sizeof *piece + piece->size;
  kw_account_credit(chain->account, size);
  if (piece->blob == NULL && piece->size >= PAGES_ROOM) {
    kw_free_pages(piece, size);
  } else {
    kw_free(piece);
  }
}

/* Pieces grow with the chain: a short chain takes little memory, and a long one has few pieces. */
static size_t room_for(const kw_chain *chain, size_t n) {
  bool is_between = chain->last != NULL && chain->last->blob != NULL;
  size_t room = is_between ? ROOM_BETWEEN : kw_min_size(chain->len, MOST_ROOM);
  if (room < LEAST_ROOM && !is_between) room = LEAST_ROOM;
  if (chain->len > LONG_CHAIN && !is_between) room = PAGES_ROOM;
  return room < n ? n : room;
}

uint8_t *kw_chain_reserve(kw_chain *chain, size_t n) {
  kw_piece *piece = chain->last;
  if (piece == NULL || piece->room < n) piece = add_piece(chain, room_for(chain, n));
  return piece == NULL ? NULL : (uint8_t *)piece->at + piece->len;
}

void kw_chain_commit(kw_chain *chain, size_t n) {
  chain->last->len += n;
  chain->last->room -= n;
  chain->len += n;
}

bool kw_chain_add(kw_chain *chain, kw_slice bytes) {
  uint8_t *to = kw_chain_reserve(chain, bytes.len);
  if (to == NULL) return false;
  if (bytes.len > 0) memcpy(to, bytes.data, bytes.len);
  kw_chain_commit(chain, bytes.len);
  return true;
}

static bool add_reference(kw_chain *chain, kw_blob *blob, kw_slice part, bool is_own) {
  kw_piece *piece = add_piece(chain, 0);
  if (piece == NULL) return false;
  if (is_own) {
    piece->size = part.len;
    kw_account_charge(chain->account, part.len);
  }
  piece->blob = kw_blob_retain(blob);
  piece->at = part.data;
  piece->len = part.len;
  chain->len += part.len;
  return true;
}

bool kw_chain_add_blob(kw_chain *chain, kw_blob *blob, kw_slice part) {
  if (part.len < KW_CHAIN_COPIED) return kw_chain_add(chain, part);
  return add_reference(chain, blob, part, false);
}

bool kw_chain_add_own_blob(kw_chain *chain, kw_blob *blob, kw_slice part) {
  if (part.len < KW_CHAIN_COPIED) return kw_chain_add(chain, part);
  return add_reference(chain, blob, part, true);
}

/* Adds the first bytes of a piece of another chain. */
static bool add_part(kw_chain *chain, const kw_piece *piece, kw_slice part) {
  if (piece->blob == NULL || part.len < KW_CHAIN_COPIED) return kw_chain_add(chain, part);
  return add_reference(chain, piece->blob, part, piece->size > 0);
}

bool kw_chain_move(kw_chain *from, size_t n, kw_chain *to) {
  while (n > 0) {
    kw_piece *piece = from->first;
    kw_slice part = kw_slice_of(piece->at, kw_min_size(n, piece->len));
    if (!add_part(to, piece, part)) return false;
    kw_chain_skip(from, part.len);
    n -= part.len;
  }
  return true;
}

void kw_chain_append(kw_chain *to, kw_chain *from) {
  if (from->first == NULL) return;
  size_t charge = kw_chain_charge(from);
  kw_account_credit(from->account, charge);
  kw_account_charge(to->account, charge);
  if (to->last != NULL) {
    to->last->next = from->first;
  } else {
    to->first = from->first;
  }
  to->last = from->last;
  to->len += from->len;
  *from = (kw_chain){.account = from->account};
}

size_t kw_chain_peek(const kw_chain *chain, struct iovec *parts, size_t max) {
  size_t n = 0;
  for (const kw_piece *piece = chain->first; piece != NULL && n < max; piece = piece->next) {
    if (piece->len > 0) parts[n++] = (struct iovec){(void *)piece->at, piece->len};
  }
  return n;
}

void kw_chain_skip(kw_chain *chain, size_t n) {
  chain->len -= n;
  while (chain->first != NULL) {
    kw_piece *piece = chain->first;
    size_t part = kw_min_size(n, piece->len);
    piece->at += part;
    piece->len -= part;
    n -= part;
    if (piece->len > 0) return;
    remove_first(chain);
  }
}

void kw_chain_drop(kw_chain *chain) {
  while (chain->first != NULL) remove_first(chain);
  *chain = (kw_chain){.account = chain->account};
}

size_t kw_chain_drop_first(kw_chain *chain) {
  if (chain->first == NULL) return 0;
  size_t size = sizeof *chain->first + chain->first->size;
  chain->len -= chain->first->len;
  remove_first(chain);
  return size;
}

size_t kw_chain_charge(const kw_chain *chain) {
  size_t charge = 0;
  for (const kw_piece *piece = chain->first; piece != NULL; piece = piece->next)
    charge += sizeof *piece + piece->size;
  return charge;
}

void kw_chain_discharge(kw_chain *chain) {
  kw_account_credit(chain->account, kw_chain_charge(chain));
  chain->account = NULL;
}
