/* SPDX-License-Identifier: MIT */
#include "rpc/client.h"

#include "base/map.h"
#include "base/mem.h"

#define RETURN_BYTES 64 /* what a return is charged beside its bytes */

typedef struct kept_return {
  kw_return what;
  kw_link link;
} kept_return;

struct kw_client {
  kw_session *session;
  kw_blob *authority;
  kw_map calls; /* streams by call */
  uint64_t last_call;
  kw_link returns; /* oldest first */
  size_t untaken;  /* bytes of them */
  size_t max_untaken;
  bool has_lost; /* a return */
};

static uint64_t call_of(const kw_stream *stream) {
  return (uint64_t)(uintptr_t)stream->owner;
}

/* {====== What comes back ====== */

/* Without memory a return is lost, and with it the connection and all that follows: nobody waits for what never comes,
 * nor takes the end of a call for that of a whole one. */
static void keep(kw_client *client, const kw_return *what) {
  kept_return *kept = client->has_lost ? NULL : kw_alloc(sizeof *kept);
  if (kept == NULL) {
    client->has_lost = true;
    if (what->bytes != NULL) kw_blob_release(what->bytes);
    kw_session_end(client->session);
    return;
  }
  kept->what = *what;
  kw_link_init(&kept->link);
  kw_link_add(&client->returns, &kept->link);
  client->untaken += RETURN_BYTES + (what->bytes == NULL ? 0 : what->bytes->len);
}

static void on_message(kw_stream *stream, kw_slice message, void *ctx) {
  kw_blob *bytes = kw_blob_copy(message);
  if (bytes == NULL) {
    kw_stream_reset(stream, KW_RESET_INTERNAL);
    return;
  }
  keep(ctx, &(kw_return){.kind = KW_RETURN_MESSAGE, .call = call_of(stream), .bytes = bytes});
}

static void on_end(kw_stream *stream, void *ctx) {
  kw_client *client = ctx;
  uint64_t call = call_of(stream);
  if (kw_map_remove(&client->calls, call) == NULL) return; /* it was cancelled */
  keep(client, &(kw_return){.kind = KW_RETURN_END,
                            .call = call,
                            .status = stream->status,
                            .bytes = stream->text == NULL ? NULL : kw_blob_retain(stream->text)});
}

static void on_nothing(kw_stream *stream, void *ctx) {
  (void)stream, (void)ctx;
}

static void drop_return(kw_client *client, kept_return *kept) {
  kw_link_remove(&kept->link);
  client->untaken -= RETURN_BYTES + (kept->what.bytes == NULL ? 0 : kept->what.bytes->len);
  kw_free(kept);
}

bool kw_client_take(kw_client *client, kw_return *what) {
  if (kw_link_is_alone(&client->returns)) return false;
  kept_return *kept = KW_CONTAINER_OF(client->returns.next, kept_return, link);
  *what = kept->what;
  drop_return(client, kept);
  return true;
}

/* }====== */

kw_client *kw_client_new(const kw_session_options *options, kw_slice authority, size_t max_untaken,
                         int64_t now) {
  kw_client *client = kw_alloc_zeroed(sizeof *client);
  if (client == NULL) return NULL;
  kw_session_options own = *options;
  own.is_client = true;
  client->max_untaken = max_untaken;
  kw_link_init(&client->returns);
  client->authority = kw_blob_copy(authority);
  if (client->authority != NULL) {
    client->session = kw_session_new(&own,
                                     &(kw_session_hooks){.on_message = on_message,
                                                         .on_half_close = on_nothing,
                                                         .on_pull = on_nothing,
                                                         .on_end = on_end,
                                                         .on_timeout = on_nothing,
                                                         .on_close = on_nothing,
                                                         .ctx = client},
                                     now);
  }
  if (client->session != NULL) return client;
  kw_client_free(client);
  return NULL;
}

void kw_client_free(kw_client *client) {
  kw_return what;
  if (client->session != NULL) kw_session_free(client->session);
  while (kw_client_take(client, &what)) {
    if (what.bytes != NULL) kw_blob_release(what.bytes);
  }
  if (client->authority != NULL) kw_blob_release(client->authority);
  kw_map_drop(&client->calls);
  kw_free(client);
}

uint64_t kw_client_call(kw_client *client, kw_slice path, const kw_field_line *lines, size_t n) {
  uint64_t call = client->last_call + 1;
  if (!kw_map_reserve(&client->calls)) return 0;
  kw_stream *stream = kw_session_request(client->session, kw_blob_slice(client->authority), path,
                                         lines, n, (void *)(uintptr_t)call);
  if (stream == NULL) return 0;
  kw_map_put(&client->calls, call, stream);
  return client->last_call = call;
}

bool kw_client_send(kw_client *client, uint64_t call, kw_slice message) {
  kw_stream *stream = kw_map_get(&client->calls, call);
  if (stream == NULL) return true;
  uint8_t *to = kw_stream_begin(stream, message.len);
  if (to == NULL) {
    kw_client_cancel(client, call);
    return false;
  }
  if (message.len > 0) memcpy(to, message.data, message.len);
  kw_stream_commit(stream, message.len);
  return true;
}

void kw_client_half_close(kw_client *client, uint64_t call) {
  kw_stream *stream = kw_map_get(&client->calls, call);
  if (stream != NULL) kw_stream_half_close(stream);
}

void kw_client_cancel(kw_client *client, uint64_t call) {
  kw_link *next;
  kw_stream *stream = kw_map_remove(&client->calls, call);
  if (stream != NULL) kw_stream_reset(stream, KW_RESET_CANCEL);
  for (kw_link *link = client->returns.next; link != &client->returns; link = next) {
    kept_return *kept = KW_CONTAINER_OF(link, kept_return, link);
    next = link->next;
    if (kept->what.call != call) continue;
    kw_blob *bytes = kept->what.bytes;
    drop_return(client, kept);
    if (bytes != NULL) kw_blob_release(bytes);
  }
}

void kw_client_feed(kw_client *client, kw_slice bytes, int64_t now) {
  kw_session_feed(client->session, bytes, now);
}

size_t kw_client_pending(kw_client *client, struct iovec *pieces, size_t max) {
  kw_session_flush(client->session);
  return kw_chain_peek(kw_session_out(client->session), pieces, max);
}

void kw_client_wrote(kw_client *client, size_t bytes) {
  kw_chain_skip(kw_session_out(client->session), bytes);
  kw_session_wrote(client->session);
}

bool kw_client_wants_bytes(const kw_client *client) {
  return client->untaken <= client->max_untaken && kw_session_wants_bytes(client->session);
}

bool kw_client_is_done(const kw_client *client) {
  return kw_session_is_done(client->session);
}

int64_t kw_client_deadline(const kw_client *client) {
  return kw_session_deadline(client->session);
}

void kw_client_step(kw_client *client, int64_t now) {
  kw_session_step(client->session, now);
}
