/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <limits.h>

#include "http/inflate.h"

#include "base/mem.h"

#define LIBRARY "libz.so.1"
#define EITHER_HEADER 47 /* zlib's windowBits: 32 KiB, and the header of gzip or of zlib */

/* The interface of libz.so.1, which is the same in all its versions. */
enum { Z_FINISHED = 1, Z_STARVED = -4, Z_NO_PROGRESS = -5 };

typedef struct z_state {
  const uint8_t *next_in;
  unsigned avail_in;
  unsigned long total_in;
  uint8_t *next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char *message;
  void *internal;
  void *(*alloc)(void *ctx, unsigned n, unsigned size);
  void (*free)(void *ctx, void *block);
  void *ctx;
  int data_type;
  unsigned long adler;
  unsigned long reserved;
} z_state;

static struct {
  bool was_tried;
  int (*init)(z_state *state, int window_bits, const char *version, int size);
  int (*inflate)(z_state *state, int flush);
  int (*reset)(z_state *state);
  int (*end)(z_state *state);
} zlib;

struct kw_inflate {
  z_state state;
  bool has_ended; /* the next input begins another part */
};

/* Sets a pointer to a function; NULL: the library has no such function. */
static void find(void *library, const char *name, void *function) {
  void *found = dlsym(library, name);
  memcpy(function, &found, sizeof found);
}

bool kw_inflate_is_available(void) {
  void *library = zlib.was_tried ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  zlib.was_tried = true;
  if (library != NULL) {
    find(library, "inflateInit2_", (void *)&zlib.init);
    find(library, "inflate", (void *)&zlib.inflate);
    find(library, "inflateReset", (void *)&zlib.reset);
    find(library, "inflateEnd", (void *)&zlib.end);
  }
  return zlib.init != NULL && zlib.inflate != NULL && zlib.reset != NULL && zlib.end != NULL;
}

static void *allocate(void *ctx, unsigned n, unsigned size) {
  (void)ctx;
  return kw_alloc((size_t)n * size);
}

static void release(void *ctx, void *block) {
  (void)ctx;
  kw_free(block);
}

kw_inflate *kw_inflate_new(void) {
  if (!kw_inflate_is_available()) return NULL;
  kw_inflate *inflate = kw_alloc_zeroed(sizeof *inflate);
  if (inflate == NULL) return NULL;
  inflate->state.alloc = allocate;
  inflate->state.free = release;
  if (zlib.init(&inflate->state, EITHER_HEADER, "1", (int)sizeof inflate->state) == 0)
    return inflate;
  kw_free(inflate);
  return NULL;
}

void kw_inflate_free(kw_inflate *inflate) {
  zlib.end(&inflate->state);
  kw_free(inflate);
}

static kw_inflated result_of(kw_inflate *inflate, int rc) {
  inflate->has_ended = rc == Z_FINISHED;
  if (rc == Z_FINISHED) return KW_INFLATED_ALL;
  if (rc == Z_STARVED) return KW_INFLATE_STARVED;
  return rc == 0 || rc == Z_NO_PROGRESS ? KW_INFLATED : KW_INFLATE_BAD;
}

kw_inflated kw_inflate_step(kw_inflate *inflate, kw_slice *input, uint8_t *to, size_t room,
                            size_t *n) {
  z_state *state = &inflate->state;
  *n = 0;
  if (inflate->has_ended && input->len > 0 && zlib.reset(state) != 0) return KW_INFLATE_BAD;
  state->next_in = input->data;
  state->avail_in = (unsigned)kw_min_size(input->len, INT_MAX);
  state->next_out = to;
  state->avail_out = (unsigned)kw_min_size(room, INT_MAX);
  int rc = zlib.inflate(state, 0);
  *n = (size_t)(state->next_out - to);
  *input = kw_slice_of(state->next_in, input->len - (size_t)(state->next_in - input->data));
  return result_of(inflate, rc);
}
