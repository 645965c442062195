/* SPDX-License-Identifier: MIT
 *
 * request: a request of gRPC or HTTP that is made once and sent many times. Only the digits of its keys are written for
 * each use.
 */
#ifndef BENCH_REQUEST_H
#define BENCH_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRPC_PREFIX 5 /* bytes before a message */

typedef struct request {
  uint8_t block[512]; /* header block */
  size_t block_len;
  size_t path_at;   /* offset of the digits of a key in the block; 0: none */
  uint8_t *message; /* with its prefix */
  size_t len;
  size_t keys_at[2]; /* offsets of the digits of the keys */
  unsigned n_keys;
} request;

/* The parameters of requests. */
typedef struct request_form {
  const char *address;
  uint64_t port;
  bool is_tls;
  size_t key_size; /* at least request_min_key() */
  size_t value_size;
  int64_t start_revision; /* of a watcher; 0: from now on */
} request_form;

size_t request_min_key(void);

void request_make_range(request *r, const request_form *form);
void request_make_put(request *r, const request_form *form);

/* Makes a transaction: a put, if the key exists (mod_revision > 0). */
void request_make_txn(request *r, const request_form *form);

/* Makes a request that creates a watcher. */
void request_make_watch(request *r, const request_form *form);

/* Makes a request of HTTP. `body` may be NULL. The first "#########" of path and body is a key. */
void request_make_rest(request *r, const request_form *form, const char *method, const char *path,
                       const char *type, const char *body);

void request_write_path(request *r, uint64_t key);
void request_write_key(request *r, uint64_t key);

#endif
