/* SPDX-License-Identifier: MIT */
#include <uv.h>

#include "uv/waker.h"

#include "base/mem.h"
#include "base/process.h"

struct kw_waker {
  pid_t pid;        /* process that can use the waker */
  uv_mutex_t mutex; /* guards the fields below */
  size_t refs;
  uv_async_t *async; /* NULL once the loop has closed */
};

kw_waker *kw_waker_new(uv_async_t *async) {
  kw_waker *waker = kw_alloc_zeroed(sizeof *waker);
  if (waker == NULL) return NULL;
  if (uv_mutex_init(&waker->mutex) < 0) {
    kw_free(waker);
    return NULL;
  }
  waker->pid = kw_process_id();
  waker->refs = 1;
  waker->async = async;
  return waker;
}

void kw_waker_adopt(kw_waker *waker) {
  uv_mutex_init(&waker->mutex); /* a thread of the parent may have locked it */
  waker->pid = kw_process_id();
}

void kw_waker_retain(kw_waker *waker) {
  if (!kw_process_is(waker->pid)) return;
  uv_mutex_lock(&waker->mutex);
  waker->refs++;
  uv_mutex_unlock(&waker->mutex);
}

void kw_waker_release(kw_waker *waker) {
  if (waker == NULL || !kw_process_is(waker->pid)) return;
  uv_mutex_lock(&waker->mutex);
  bool is_last = --waker->refs == 0;
  uv_mutex_unlock(&waker->mutex);
  if (!is_last) return;
  uv_mutex_destroy(&waker->mutex);
  kw_free(waker);
}

void kw_waker_wake(kw_waker *waker) {
  if (waker == NULL || !kw_process_is(waker->pid)) return;
  uv_mutex_lock(&waker->mutex);
  if (waker->async != NULL) uv_async_send(waker->async);
  uv_mutex_unlock(&waker->mutex);
}

void kw_waker_cut(kw_waker *waker) {
  uv_mutex_lock(&waker->mutex);
  waker->async = NULL;
  uv_mutex_unlock(&waker->mutex);
  kw_waker_release(waker);
}

bool kw_waker_is_shared(kw_waker *waker) {
  uv_mutex_lock(&waker->mutex);
  bool is_shared = waker->refs > 1;
  uv_mutex_unlock(&waker->mutex);
  return is_shared;
}

/* {====== The bell ====== */

static void ring(void *waker) {
  kw_waker_wake(waker);
}

static void retain_bell(void *waker) {
  kw_waker_retain(waker);
}

static void release_bell(void *waker) {
  kw_waker_release(waker);
}

kw_bell kw_waker_bell(kw_waker *waker) {
  kw_waker_retain(waker);
  return (kw_bell){ring, retain_bell, release_bell, waker};
}

/* }====== */
