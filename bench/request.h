/* SPDX-License-Identifier: MIT
 *
 * request: a gRPC request that is made once. Of what is sent, only the digits of its keys are ever written anew.
 */
#ifndef BENCH_REQUEST_H
#define BENCH_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#define GRPC_PREFIX 5 /* bytes before a message */

typedef struct request {
  uint8_t block[256]; /* its headers */
  size_t block_len;
  uint8_t *message; /* with its prefix */
  size_t len;
  size_t keys_at[2]; /* where the digits of its keys are */
  unsigned n_keys;
} request;

/* What requests are made of. */
typedef struct request_form {
  const char *address;
  uint64_t port;
  size_t key_size; /* at least request_min_key() */
  size_t value_size;
  int64_t start_revision; /* of a watcher; 0: from now on */
} request_form;

size_t request_min_key(void);

void request_make_range(request *r, const request_form *form);
void request_make_put(request *r, const request_form *form);

/* A put of a key that exists: one whose mod_revision is above 0. */
void request_make_txn(request *r, const request_form *form);

/* The creation of a watcher. */
void request_make_watch(request *r, const request_form *form);

void request_write_key(request *r, uint64_t key);

#endif
