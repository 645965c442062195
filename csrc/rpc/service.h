/* SPDX-License-Identifier: MIT
 *
 * service: methods, and what those who implement them share. For this folder only.
 */
#ifndef KW_RPC_SERVICE_H
#define KW_RPC_SERVICE_H

#include "base/link.h"
#include "base/map.h"
#include "codec/messages.h"
#include "rpc/server.h"

typedef struct kw_method kw_method;

/* What a method does when something happens to a call of it; what is NULL does not concern it. */
struct kw_method {
  const char *path;
  const kw_message *request; /* NULL: the bytes are handed on as they are */
  bool is_unary;
  bool takes_one; /* not unary, but of one request */
  void (*on_open)(kw_server *server, kw_stream *stream);
  void (*on_request)(kw_server *server, kw_stream *stream, const void *request);
  void (*on_half_close)(kw_server *server, kw_stream *stream);
  void (*on_pull)(kw_server *server, kw_stream *stream);
  void (*on_room)(kw_server *server, kw_stream *stream);    /* of those that defer a call */
  void (*on_timeout)(kw_server *server, kw_stream *stream); /* it has got its status */
  void (*on_drain)(kw_server *server, kw_stream *stream);
  void (*on_close)(kw_server *server, kw_stream *stream);
};

/* Ended by one without a path. */
extern const kw_method kw_kv_methods[];
extern const kw_method kw_lease_methods[];
extern const kw_method kw_watch_methods[];

struct kw_server {
  kw_store *store; /* NULL: closed */
  kw_hub *hub;
  kw_server_options options;
  kw_arena arena; /* for the length of a request */
  int64_t now;
  uint8_t ids[24]; /* of every header: the cluster and the member, encoded */
  size_t n_ids;

  kw_map methods;      /* by the hash of the path */
  kw_method **mounted; /* those that are answered elsewhere */
  size_t n_mounted;
  size_t cap_mounted;

  kw_link peers;
  size_t n_peers;
  kw_budget budget; /* of what they hold */
  bool is_draining;

  kw_link ranges;          /* answers that are being made, page by page */
  kw_link undurable;       /* answers that wait until what they tell is durable, in order */
  kw_ready ready;          /* watch streams that have something to send */
  kw_stream **compactions; /* calls that wait for the end of a compaction */
  size_t n_compactions;
  size_t cap_compactions;

  kw_map calls; /* that Lua has to do with, by id */
  uint64_t last_call;
  kw_link news; /* those of them that have some, oldest first */
  bool is_intercepting;
  struct kw_notes *notes; /* for a debug log, see rpc/notes.h; NULL: none are taken */
};

/* What services do in every turn: calls that waited for a compaction are answered, large answers are made, and watch
 * streams that have got something to send are woken. The first returns whether it wants another turn at once. */
bool kw_kv_tend(kw_server *server);
void kw_watch_tend(kw_server *server);

/* The time of the store. */
int64_t kw_server_time(const kw_server *server);

/* Tells the driver of a stream's connection that there may be something to write. */
void kw_server_touch(kw_stream *stream);

/* Who is at the other end of its connection; or "". */
const char *kw_server_remote(const kw_stream *stream);

/* True if the call is shown to Lua first: it begins when Lua lets it. And its end, whoever has answered it. */
bool kw_call_begin_intercepted(kw_server *server, kw_stream *stream, const kw_method *method);
void kw_call_end_intercepted(kw_server *server, kw_stream *stream);

#ifdef KW_PROBE
/* What a stream's account is charged for the call that Lua has to do with, if there is one. */
size_t kw_call_charge(const kw_stream *stream);
#endif

/* Whether an answer of `len` bytes may wait on a stream, of which so many are its connection's to hold. */
bool kw_service_may_answer(kw_stream *stream, size_t len, size_t held);

/* Ends a call with what is known of an error; or for an answer that is too large to be sent. */
void kw_service_fail(kw_stream *stream, int rc);
void kw_service_refuse_size(kw_stream *stream, size_t len);

#define KW_MAX_ANSWER INT32_MAX /* as in etcd: a small transaction can ask for any amount */

/* Begins an answer: the room of its message, with the header written; *to is where the rest goes, `rest` bytes. False
 * if memory is short. Then kw_service_send, when all is filled in; a unary call ends with it. */
typedef struct kw_answer_room {
  kw_stream *stream;
  uint8_t *to;
  size_t len;
} kw_answer_room;

size_t kw_service_header_size(const kw_server *server, int64_t revision);
uint8_t *kw_service_put_header(const kw_server *server, int64_t revision, uint8_t *to);
bool kw_service_begin(kw_server *server, kw_stream *stream, int64_t revision, size_t rest,
                      kw_answer_room *room);
void kw_service_send(kw_answer_room *room);

/* The same for a unary call that has committed something, or has seen what was: its answer, or its failure, leaves when
 * that is durable. */
void kw_service_send_durable(kw_server *server, kw_answer_room *room);
void kw_service_fail_durable(kw_server *server, kw_stream *stream, int rc);
void kw_service_tend(kw_server *server);

/* The time of a unary call is over, and it has got its status: whatever its answer would be, nothing of it leaves. */
void kw_service_abandon(kw_server *server, kw_stream *stream);

/* Makes room for a small answer, so that it can be given after something that cannot be undone. False if memory is
 * short: then the call has failed. */
bool kw_service_make_room(kw_stream *stream);

/* An answer made by description, whole, which of a unary call leaves when all that it may have seen is durable; false
 * if memory is short. A large one is refused where too many wait. */
bool kw_service_answer(kw_server *server, kw_stream *stream, int64_t revision,
                       const kw_message *message, const void *record);

#endif
