/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>
#include <uv.h>

#include "uv/signals.h"

#include "uv/loop.h"

/* Signals that are requests to the program. Excluded are signals that cannot be caught (KILL, STOP), that report a
 * fault in the program (SEGV, ABRT...), that stop it (TSTP...), and those for which keywatch or libuv have a better
 * API: ALRM (timeouts), PIPE (errors of writes), CHLD (the end of a child). */
static const struct {
  const char *name;
  int number;
} kinds[KW_SIGNALS] = {{"HUP", SIGHUP},     {"INT", SIGINT},   {"QUIT", SIGQUIT},
                       {"TERM", SIGTERM},   {"USR1", SIGUSR1}, {"USR2", SIGUSR2},
                       {"WINCH", SIGWINCH}, {"CONT", SIGCONT}};

int kw_signals_find(const char *name) {
  for (int i = 0; i < KW_SIGNALS; i++) {
    if (strcmp(kinds[i].name, name) == 0) return i;
  }
  return -1;
}

const char *kw_signals_name(int index) {
  return kinds[index].name;
}

/* {====== Effects ====== */

/* The effects of the signals before loops of the process caught them. */
static struct {
  unsigned loops; /* number of loops that catch the signal */
  struct sigaction former;
} effects[KW_SIGNALS];

static struct sigaction libuvs; /* effect of a signal that libuv handles */
static bool is_libuvs_known;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the variables above */

static struct sigaction effect_of(int i) {
  struct sigaction effect;
  sigaction(kinds[i].number, NULL, &effect);
  return effect;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b) {
  if ((a->sa_flags & SA_SIGINFO) != (b->sa_flags & SA_SIGINFO)) return false;
  if (a->sa_flags & SA_SIGINFO) return a->sa_sigaction == b->sa_sigaction;
  return a->sa_handler == b->sa_handler;
}

static bool is_libuvs(const struct sigaction *effect) {
  return is_libuvs_known && is_same(effect, &libuvs);
}

/* Blocks all signals in this thread: between two changes the effect of a signal could be the default one. */
static void lock(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, before);
  pthread_mutex_lock(&mutex);
}

static void unlock(const sigset_t *before) {
  pthread_mutex_unlock(&mutex);
  pthread_sigmask(SIG_SETMASK, before, NULL);
}

static void before_fork(void) {
  pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void) {
  pthread_mutex_unlock(&mutex);
}

static void after_fork_in_child(void) {
  for (int i = 0; i < KW_SIGNALS; i++) {
    struct sigaction now = effect_of(i);
    if (effects[i].loops > 0 && is_libuvs(&now))
      sigaction(kinds[i].number, &effects[i].former, NULL);
    effects[i].loops = 0;
  }
  pthread_mutex_unlock(&mutex);
}

static int fork_error; /* of registering the functions above */

static void begin(void) {
  fork_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Installs libuv's handler, which libuv does only for the first handle of a signal. If the program has replaced it
 * since, the program's handler is the effect that is restored when the signal is no longer caught. */
static void install(int i) {
  struct sigaction now = effect_of(i);
  if (is_libuvs(&now)) return;
  effects[i].former = now;
  sigaction(kinds[i].number, &libuvs, NULL);
}

static int start(kw_loop *loop, int i, uv_signal_cb on_signal) {
  struct sigaction before = effect_of(i);
  int rc = uv_signal_start(&loop->signals.uv[i], on_signal, kinds[i].number);
  loop->has_changed_events = true;
  if (rc < 0) return rc;
  if (!is_libuvs_known) libuvs = effect_of(i);
  is_libuvs_known = true;
  if (effects[i].loops++ == 0) effects[i].former = before;
  loop->signals.caught |= 1u << i;
  return 0;
}

/* If libuv has removed its handler, restores the previous effect; but if the program has replaced libuv's handler, the
 * program's choice remains. */
static void stop(kw_loop *loop, int i) {
  struct sigaction before = effect_of(i);
  uv_signal_stop(&loop->signals.uv[i]);
  struct sigaction now = effect_of(i);
  loop->signals.caught &= ~(1u << i);
  bool is_last = effects[i].loops > 0 && --effects[i].loops == 0;
  if (is_same(&now, &before)) return;
  const struct sigaction *kept = is_last && is_libuvs(&before) ? &effects[i].former : &before;
  if (!is_libuvs(kept)) sigaction(kinds[i].number, kept, NULL);
}

/* }====== */

/* {====== Loops ====== */

static kw_catcher *catcher_at(kw_link *link) {
  return KW_CONTAINER_OF(link, kw_catcher, link);
}

static void on_signal(uv_signal_t *uv, int number) {
  kw_loop *loop = KW_CONTAINER_OF(uv->loop, kw_loop, uv);
  kw_signals *signals = &loop->signals;
  unsigned bit = 1u << (uv - signals->uv);
  (void)number;
  for (kw_link *link = signals->catchers.next; link != &signals->catchers; link = link->next) {
    kw_catcher *catcher = catcher_at(link);
    catcher->untaken |= catcher->wanted & bit;
  }
  signals->has_arrived = true;
}

/* Only the first handle of a loop needs a resource: a pipe. */
static int open_handles(kw_loop *loop) {
  if (loop->signals.is_open) return 0;
  int rc = uv_signal_init(&loop->uv, &loop->signals.uv[0]);
  if (rc < 0) return rc;
  for (int i = 1; i < KW_SIGNALS; i++) uv_signal_init(&loop->uv, &loop->signals.uv[i]);
  loop->signals.is_open = true;
  return 0;
}

/* Starts and stops the handles for the signals of all catchers. `fresh` are the signals of a new catcher. Returns 0, or
 * the error of the first handle that did not start. */
static int update(kw_loop *loop, unsigned fresh) {
  kw_signals *signals = &loop->signals;
  unsigned wanted = 0;
  sigset_t before;
  int rc = 0;
  for (kw_link *link = signals->catchers.next; link != &signals->catchers; link = link->next)
    wanted |= catcher_at(link)->wanted;
  lock(&before);
  for (int i = 0; i < KW_SIGNALS; i++) {
    unsigned bit = 1u << i;
    if (!(wanted & bit) && (signals->caught & bit)) stop(loop, i);
    if ((wanted & bit) && !(signals->caught & bit) && rc == 0) rc = start(loop, i, on_signal);
    if (rc == 0 && (fresh & bit)) install(i);
  }
  unlock(&before);
  return rc;
}

void kw_signals_init(kw_signals *signals) {
  kw_link_init(&signals->catchers);
}

static void close_all(kw_loop *loop, bool is_inherited) {
  kw_signals *signals = &loop->signals;
  while (!kw_link_is_alone(&signals->catchers)) {
    kw_catcher *catcher = catcher_at(signals->catchers.next);
    kw_link_remove(&catcher->link);
    catcher->loop = NULL;
    catcher->is_inherited = is_inherited;
  }
  signals->has_arrived = false;
  update(loop, 0);
}

void kw_signals_drop(kw_loop *loop) {
  close_all(loop, false);
  for (int i = 0; loop->signals.is_open && i < KW_SIGNALS; i++)
    uv_close((uv_handle_t *)&loop->signals.uv[i], NULL);
}

void kw_signals_abandon(kw_loop *loop) {
  close_all(loop, true);
}

/* }====== */

/* {====== Catchers ====== */

int kw_catcher_open(kw_catcher *catcher, kw_loop *loop, unsigned wanted) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
  if (fork_error != 0) return uv_translate_sys_error(fork_error);
  int rc = open_handles(loop);
  if (rc < 0) return rc;
  catcher->loop = loop;
  catcher->wanted = wanted;
  catcher->untaken = 0;
  kw_link_init(&catcher->link);
  kw_link_add(&loop->signals.catchers, &catcher->link);
  rc = update(loop, wanted);
  if (rc < 0) kw_catcher_close(catcher);
  return rc;
}

void kw_catcher_close(kw_catcher *catcher) {
  kw_loop *loop = catcher->loop;
  if (loop == NULL) return;
  kw_link_remove(&catcher->link);
  catcher->loop = NULL;
  update(loop, 0);
}

const char *kw_catcher_take(kw_catcher *catcher) {
  for (int i = 0; i < KW_SIGNALS; i++) {
    unsigned bit = 1u << i;
    if (!(catcher->untaken & bit)) continue;
    catcher->untaken &= ~bit;
    return kinds[i].name;
  }
  return NULL;
}

/* }====== */
