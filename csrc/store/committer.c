/* SPDX-License-Identifier: MIT */
#include "store/committer.h"

#include "base/mem.h"
#include "base/thread.h"
#include "model/error.h"

typedef enum work { IDLE, SUBMITTED, DONE } work;

struct kw_committer {
  kw_database *database;
  kw_commit_group gathering;
  kw_commit_group submitted; /* the thread's, while the work is SUBMITTED */
  bool must_copy;            /* after the submitted group, for a defragmentation */
  int defragmented;          /* outcome of the last defragmentation */

  pthread_t thread;
  bool has_thread;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  work work;
  int rc;          /* outcome of the submitted group */
  int copy_rc;     /* outcome of the copy */
  bool must_close; /* the file that a defragmentation has replaced */
  bool must_end;   /* the thread, once nothing is submitted */
  kw_bell bell;
#ifdef KW_PROBE
  bool is_held;
  int next_failure;
#endif
};

/* {====== The thread ====== */

#ifdef KW_PROBE

static bool is_held(const kw_committer *committer) {
  return committer->is_held;
}

static int take_failure(kw_committer *committer) {
  pthread_mutex_lock(&committer->mutex);
  int rc = committer->next_failure;
  committer->next_failure = KW_OK;
  pthread_mutex_unlock(&committer->mutex);
  return rc;
}

void kw_committer_hold(kw_committer *committer, bool hold) {
  pthread_mutex_lock(&committer->mutex);
  committer->is_held = hold;
  pthread_cond_broadcast(&committer->changed);
  pthread_mutex_unlock(&committer->mutex);
}

void kw_committer_fail_next(kw_committer *committer, int rc) {
  pthread_mutex_lock(&committer->mutex);
  committer->next_failure = rc;
  pthread_mutex_unlock(&committer->mutex);
}

#else

static bool is_held(const kw_committer *committer) {
  (void)committer;
  return false;
}

static int take_failure(kw_committer *committer) {
  (void)committer;
  return KW_OK;
}

#endif

/* The mutex is locked. */
static bool has_work(const kw_committer *committer) {
  if (committer->must_close || committer->must_end) return true;
  return committer->work == SUBMITTED && !is_held(committer);
}

/* Closes the file that was replaced, before the next group can replace another one. The mutex is locked. */
static void close_replaced(kw_committer *committer) {
  committer->must_close = false;
  pthread_mutex_unlock(&committer->mutex);
  kw_database_close_replaced(committer->database);
  pthread_mutex_lock(&committer->mutex);
}

static void *run(void *ctx) {
  kw_committer *committer = ctx;
  pthread_mutex_lock(&committer->mutex);
  while (true) {
    while (!has_work(committer)) pthread_cond_wait(&committer->changed, &committer->mutex);
    if (committer->must_close) {
      close_replaced(committer);
      continue;
    }
    if (committer->work != SUBMITTED) break;
    pthread_mutex_unlock(&committer->mutex);
    int rc = take_failure(committer), copy_rc = KW_OK;
    if (rc == KW_OK) rc = kw_database_write(committer->database, &committer->submitted);
    if (rc == KW_OK && committer->must_copy) copy_rc = kw_database_copy(committer->database);
    pthread_mutex_lock(&committer->mutex);
    committer->rc = rc;
    committer->copy_rc = copy_rc;
    committer->work = DONE;
    pthread_cond_broadcast(&committer->changed);
    kw_bell_ring(&committer->bell);
  }
  pthread_mutex_unlock(&committer->mutex);
  return NULL;
}

int kw_committer_start(kw_database *database, kw_committer **result) {
  kw_committer *committer = kw_alloc_zeroed(sizeof *committer);
  if (committer == NULL) return KW_ERR_NO_MEMORY;
  committer->database = database;
  pthread_mutex_init(&committer->mutex, NULL);
  pthread_cond_init(&committer->changed, NULL);
  committer->has_thread = kw_thread_start(&committer->thread, run, committer);
  if (!committer->has_thread) {
    kw_committer_close(committer);
    return KW_ERR_STORAGE;
  }
  *result = committer;
  return KW_OK;
}

static void end_thread(kw_committer *committer) {
  if (!committer->has_thread) return;
  pthread_mutex_lock(&committer->mutex);
  committer->must_end = true;
  pthread_cond_broadcast(&committer->changed);
  pthread_mutex_unlock(&committer->mutex);
  pthread_join(committer->thread, NULL);
}

/* After a fork the child's copy of the mutex may stay locked for ever. */
static void end(kw_committer *committer) {
  if (kw_database_is_inherited(committer->database)) return;
  end_thread(committer);
  kw_committer_set_bell(committer, (kw_bell){0});
  pthread_cond_destroy(&committer->changed);
  pthread_mutex_destroy(&committer->mutex);
}

void kw_committer_close(kw_committer *committer) {
  end(committer);
  kw_commit_group_drop(&committer->gathering);
  kw_commit_group_drop(&committer->submitted);
  kw_free(committer);
}

void kw_committer_set_bell(kw_committer *committer, kw_bell bell) {
  pthread_mutex_lock(&committer->mutex);
  kw_bell before = committer->bell;
  committer->bell = bell;
  pthread_mutex_unlock(&committer->mutex);
  kw_bell_release(&before);
}

/* }====== */

/* {====== Groups ====== */

kw_commit_group *kw_committer_group(kw_committer *committer) {
  return &committer->gathering;
}

bool kw_committer_is_idle(const kw_committer *committer) {
  pthread_mutex_t *mutex = (pthread_mutex_t *)&committer->mutex;
  pthread_mutex_lock(mutex);
  bool is_idle = committer->work == IDLE;
  pthread_mutex_unlock(mutex);
  return is_idle;
}

/* The memory of the group that was taken last is used again. */
void kw_committer_submit(kw_committer *committer, const kw_commit_meta *meta, bool defragment) {
  kw_commit_group gathering = committer->submitted;
  committer->submitted = committer->gathering;
  committer->submitted.meta = *meta;
  committer->gathering = gathering;
  committer->must_copy = defragment;
  pthread_mutex_lock(&committer->mutex);
  committer->work = SUBMITTED;
  pthread_cond_broadcast(&committer->changed);
  pthread_mutex_unlock(&committer->mutex);
}

static void close_later(kw_committer *committer) {
  pthread_mutex_lock(&committer->mutex);
  committer->must_close = true;
  pthread_cond_broadcast(&committer->changed);
  pthread_mutex_unlock(&committer->mutex);
}

/* Replaces the database by its copy, or else moves its reader on. A replacement that a crash could undo ends all
 * writing: it fails with KW_ERR_STORAGE. */
static int move_on(kw_committer *committer) {
  bool is_swapped = false;
  if (committer->must_copy) {
    committer->defragmented = committer->copy_rc;
    if (committer->copy_rc == KW_OK)
      committer->defragmented = kw_database_swap(committer->database, &is_swapped);
  }
  if (is_swapped) close_later(committer);
  if (is_swapped) return committer->defragmented == KW_OK ? KW_OK : KW_ERR_STORAGE;
  return kw_database_renew(committer->database);
}

static bool take_done(kw_committer *committer, bool wait) {
  pthread_mutex_lock(&committer->mutex);
  while (wait && committer->work == SUBMITTED)
    pthread_cond_wait(&committer->changed, &committer->mutex);
  bool is_done = committer->work == DONE;
  if (is_done) committer->work = IDLE;
  pthread_mutex_unlock(&committer->mutex);
  return is_done;
}

bool kw_committer_take(kw_committer *committer, bool wait, kw_commit_meta *meta, int *rc) {
  if (!take_done(committer, wait)) return false;
  *meta = committer->submitted.meta;
  *rc = committer->rc;
  if (committer->rc == KW_OK) *rc = move_on(committer);
  if (committer->rc == KW_ERR_NO_SPACE && kw_database_renew(committer->database) != KW_OK)
    *rc = KW_ERR_STORAGE; /* removals may have been written: the reader must leave their pages */
  if (*rc == KW_OK) kw_commit_group_clear(&committer->submitted);
  return true;
}

int kw_committer_forget(kw_committer *committer) {
  kw_commit_group newer = committer->gathering;
  int rc = kw_commit_group_keep_removals(&committer->submitted, &newer);
  committer->gathering = committer->submitted;
  committer->submitted = newer;
  return rc;
}

int kw_committer_defragmented(const kw_committer *committer) {
  return committer->defragmented;
}

/* }====== */
