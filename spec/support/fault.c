/* SPDX-License-Identifier: MIT
 *
 * fault: a library that simulates a failing disk, preloaded into a process. All files below the directory KW_FAULT_DIR
 * are on this disk; other files are not affected. Paths are absolute.
 *
 * The file KW_FAULT_CONTROL has the plan, one line. When another file has replaced it, the library reads it again
 * before the next call. From then on calls are counted, and all earlier writes count as synced. When the plan strikes,
 * a file appears, with the name of the control file and ".struck". It has one line: the path of the call's file; the
 * offset of the write, -1 for a call that is not a write; the operation to which the call belongs, see part_of; and
 * the number of segments that the store's journal has begun to reuse since the beginning of the database's last
 * transaction.
 *
 *   fail KIND N once|on ERRNO     the N-th call, or all from there on, fails
 *   short KIND N once|on          the call writes half of its bytes
 *   kill KIND N before|after      the process is killed
 *   stop KIND N                   the process stops before the call, until it is sent SIGCONT
 *   cut KIND N before|after SEED  the power fails: before means in the middle of the call
 *   tear KIND N before|after SEED the same, and some sectors of journals are torn: one part of such a sector is new,
 *                                 the other old. LMDB relies on disks that write whole sectors, a journal does not.
 *                                 Until then some of the writes with RWF_DSYNC are short, and no syncs
 *   delay MS                      every sync takes that long
 *   room BYTES ERRNO              files can grow by so many bytes in all; a write that would need more is short, and
 *                                 one that would need all of it fails
 *
 * A plan of fail, short, kill, stop, cut or tear may end in NAME: then only calls for files whose names begin with NAME
 * are counted.
 *
 * A kind is any, open, write, sync, size or name. A write may also count as a sync, because of its descriptor or of
 * RWF_DSYNC, or as a size, beyond the end of the file.
 *
 * Instead, a program can have machines, in its own process: it loads kw_fault_machine from this library, a Lua function
 * that takes one of these commands, and returns a text:
 *
 *   plan PATH LINE      LINE is the plan for the disk of the machine whose directory is PATH, the only plan there is
 *   kill PATH           the process of the machine is killed; or the plan does that
 *   is_dead PATH        "yes" if either has happened: from then on all writes to the disk fail
 *   revive PATH [SEED]  the disk works again. The power has failed if there is a SEED, or if the plan was a cut
 *   clock NS            the monotonic clock and the calendar stand at that time; -1: they are the system's
 *   random SEED         the system's random numbers depend on a seed
 *   forget              all disks are empty, and there is no plan
 *   limit SECONDS       the process dies after so much processor time; 0: no limit
 *   memory              returns the bytes that are allocated by the C library, and not freed
 *
 * KW_FAULT_SLOW, if set, is the number of milliseconds that a sync of data.mdb waits before it begins. Other
 * threads continue during this time.
 *
 * Nothing is really synced, since only the process dies. A log shows what a disk may lose: for each file, the writes
 * since its last sync and the bytes that they have replaced; and the names that were made since the last sync of their
 * directory. When the power fails, every file returns to its synced state; then, depending on the seed, all, some or no
 * sectors of each later write are applied, and the first few of the names. Writes through mapped memory are not seen.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECTOR 512
#define FDS 1024
#define FILES 1024
#define NAMES 1024
#define FIRST_FRAME 4096 /* its offset in a segment */
#define META_PAGES 8192  /* bytes of LMDB's meta pages */

enum { OPEN = 1, WRITE = 2, SYNC = 4, SIZE = 8, NAME = 16, ANY = 31 };

typedef enum action { NOTHING, FAIL, SHORT, KILL, CUT, DELAY, ROOM, STOP, DEAD } action;

typedef struct plan {
  action action;
  int kind;
  long nth;
  bool goes_on;
  bool is_after;
  bool tears; /* sectors */
  long value; /* an errno, a seed, or milliseconds */
  long room;  /* bytes that are left */
  long calls;
  long syncing;  /* writes with RWF_DSYNC */
  char name[32]; /* that the names of the files begin with */
} plan;

/* Bytes that were written, or a new size. */
typedef struct op {
  struct op *next;
  struct op *before;
  off_t at;
  size_t len;
  off_t old_size;
  off_t new_size;
  size_t old_len; /* of the previous bytes */
  bool is_durable;
  char bytes[]; /* the new bytes, then the old ones */
} op;

typedef struct file {
  char path[PATH_MAX];
  op *first;
  op *last;
  bool has_frames; /* a segment to which a frame was written */
  int cut_fd;      /* open while the power fails, or below 0 */
  off_t cut_size;  /* size that the file will have */
} file;

typedef struct name {
  char path[PATH_MAX];
  char from[PATH_MAX];  /* old name of a renamed file, or empty */
  char saved[PATH_MAX]; /* path of the previous file with the name, or empty */
} name;

/* A dead machine of this process. */
typedef struct machine {
  char path[PATH_MAX];
  bool is_dead;
  plan plan; /* of a power failure, or nothing */
} machine;

#define MACHINES 16

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static machine machines[MACHINES];
static char planned[PATH_MAX]; /* directory of the machine that the plan is for */
static plan now;
static struct stat seen; /* the control file that was read last */
static struct {
  file *file;
  bool syncs;
} fds[FDS];
static file *files[FILES];
static int n_files;
static name *names[NAMES];
static int n_names;
static uint64_t random_state;
static int64_t clock_ns = -1; /* of the machines; -1: the system's */
static uint64_t entropy;      /* state of their random numbers; 0: the system's */
static bool has_machines;
static const char *judged_path; /* path of the last judged call */
static off_t judged_at;         /* where that call writes, or -1 */
static int judged_kinds;        /* of that call */
static struct {
  bool has_read_journal; /* or has begun to */
  bool has_frames;       /* one was appended */
  int frames;            /* that were appended since the last transaction has begun */
  int reused;            /* segments that were used again since then */
  int applied;           /* `frames` when the transaction has begun */
  pid_t writer;          /* thread of the transaction; 0: there is none */
} store;

/* {====== The real calls ====== */

static int real_open(const char *path, int flags, int mode) {
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static ssize_t real_pwrite(int fd, const void *bytes, size_t len, off_t at) {
  return syscall(SYS_pwrite64, fd, bytes, len, at);
}

static int real_unlink(const char *path) {
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static int real_rename(const char *from, const char *to) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int real_truncate(int fd, off_t size) {
  return (int)syscall(SYS_ftruncate, fd, size);
}

static off_t size_of(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? st.st_size : 0;
}

/* }====== */

/* {====== The plan ====== */

static int kind_of(const char *text) {
  static const char *const kinds[] = {"open", "write", "sync", "size", "name"};
  for (int i = 0; i < 5; i++) {
    if (strcmp(text, kinds[i]) == 0) return 1 << i;
  }
  return ANY;
}

static plan parse(const char *line) {
  static const char *const actions[] = {"",    "fail",  "short", "kill",
                                        "cut", "delay", "room",  "stop"};
  char what[16] = "", kind[16] = "", how[16] = "";
  plan p = {0};
  sscanf(line, "%15s %15s %ld %15s %ld %31s", what, kind, &p.nth, how, &p.value, p.name);
  for (int i = 1; i < 8; i++) {
    if (strcmp(what, actions[i]) == 0) p.action = (action)i;
  }
  p.tears = strcmp(what, "tear") == 0;
  if (p.tears) p.action = CUT;
  p.kind = kind_of(kind);
  p.goes_on = strcmp(how, "on") == 0;
  p.is_after = strcmp(how, "after") == 0;
  if (p.action == DELAY) p.value = atol(kind);
  if (p.action == ROOM) {
    p.room = atol(kind);
    p.value = p.nth;
  }
  return p;
}

static void forget_all(void);

/* True if a path is a directory, or below it. */
static bool is_in_tree(const char *path, const char *dir) {
  size_t len = dir == NULL ? 0 : strlen(dir);
  return len > 0 && strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == 0);
}

/* Returns the machine to which a path belongs, or NULL. */
static machine *machine_of(const char *path) {
  for (int i = 0; i < MACHINES; i++) {
    if (is_in_tree(path, machines[i].path)) return &machines[i];
  }
  return NULL;
}

static void read_plan(void) {
  if (has_machines) return;
  const char *path = getenv("KW_FAULT_CONTROL");
  char line[128] = "";
  struct stat st;
  if (path == NULL || stat(path, &st) < 0) return;
  if (st.st_ino == seen.st_ino && st.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return;
  seen = st;
  int fd = real_open(path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return;
  if (read(fd, line, sizeof line - 1) < 0) line[0] = 0;
  close(fd);
  now = parse(line);
  forget_all();
}

/* True if the last part of a path begins with a name. */
static bool has_name(const char *path, const char *beginning) {
  const char *slash = strrchr(path, '/');
  return strncmp(slash == NULL ? path : slash + 1, beginning, strlen(beginning)) == 0;
}

static const char *part_of(void);

static void tell_that_it_struck(void) {
  if (has_machines) return;
  char path[PATH_MAX], made[PATH_MAX], text[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s.struck", getenv("KW_FAULT_CONTROL"));
  snprintf(made, sizeof made, "%s.strikes", getenv("KW_FAULT_CONTROL"));
  int len = snprintf(text, sizeof text, "%s %lld %s %d\n", judged_path, (long long)judged_at,
                     part_of(), store.reused);
  int fd = real_open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (syscall(SYS_write, fd, text, (size_t)len) < 0) abort();
  close(fd);
  real_rename(made, path);
}

/* Counts a call. Returns what the plan does to it. `at` is -1 for a call that is not a write. */
static action judge(int kinds, const char *path, off_t at) {
  judged_path = path;
  judged_at = at;
  judged_kinds = kinds;
  read_plan();
  machine *m = has_machines ? machine_of(path) : NULL;
  if (m != NULL && m->is_dead) return DEAD;
  if (has_machines && !is_in_tree(path, planned)) return NOTHING;
  if (now.action == DELAY && (kinds & SYNC)) {
    struct timespec ts = {now.value / 1000, now.value % 1000 * 1000000};
    nanosleep(&ts, NULL);
    return NOTHING;
  }
  if (now.action == NOTHING || now.action == DELAY || now.action == ROOM || !(now.kind & kinds))
    return NOTHING;
  if (!has_name(path, now.name)) return NOTHING;
  now.calls++;
  if (now.calls < now.nth || (now.calls > now.nth && !now.goes_on)) return NOTHING;
  if (now.action == SHORT && !(kinds & WRITE)) return NOTHING;
  tell_that_it_struck();
  if (now.action == STOP) kill(getpid(), SIGSTOP);
  return now.action;
}

/* }====== */

/* {====== The store ======
 *
 * The state of the store in KW_FAULT_DIR/store, as its calls show it. The main thread opens the store and recovers. A
 * second thread appends frames to the store's journal, and writes an epoch to the database before the first frame. A
 * third thread writes checkpoints and direct groups to the database. A direct group is never written while a frame is
 * appended.
 */

static bool is_of_store(const char *path, const char *beginning) {
  return strstr(path, "/store/") != NULL && has_name(path, beginning);
}

/* Notes a call that opens a file. A store opens its lock first. */
static void note_open(const char *path) {
  if (is_of_store(path, "lock")) memset(&store, 0, sizeof store);
  if (is_of_store(path, "journal-")) store.has_read_journal = true;
}

/* Notes a frame. A frame at the beginning of a segment that has frames uses the segment again. */
static void note_journal(file *f, off_t at) {
  store.has_frames = true;
  store.frames++;
  if (at == FIRST_FRAME && f->has_frames) store.reused++;
  f->has_frames = true;
}

/* Notes a write to the database. The first one begins a transaction. */
static void note_database(void) {
  if (store.writer != 0) return;
  store.writer = gettid();
  store.applied = store.frames;
  store.frames = store.reused = 0;
}

/* Notes a write, before it happens. */
static void note_write(file *f, off_t at) {
  if (is_of_store(f->path, "journal-")) note_journal(f, at);
  if (is_of_store(f->path, "data.mdb")) note_database();
}

/* Notes the end of a write. The write of a meta page ends a transaction. */
static void note_written(const file *f, off_t at) {
  if (is_of_store(f->path, "data.mdb") && at < META_PAGES) store.writer = 0;
}

/* Returns the operation to which the last judged call belongs:
 *
 *   recovery     a transaction of the main thread, between its reading of the store's journal and the first frame
 *   checkpoint   a transaction of another thread; frames were appended since the begin of the previous one
 *   group        a transaction of another thread without such frames: a direct group, or a later part of a checkpoint
 *   other        anything else */
static const char *part_of(void) {
  if (!is_of_store(judged_path, "data.mdb") || !(judged_kinds & (WRITE | SYNC))) return "other";
  if (store.writer != gettid()) return "other";
  if (store.writer == getpid())
    return store.has_read_journal && !store.has_frames ? "recovery" : "other";
  if (store.applied > 0) return "checkpoint";
  return store.has_frames ? "group" : "other"; /* the first transaction may begin an epoch */
}

/* }====== */

/* {====== The journal ====== */

static bool is_below(const char *path) {
  return is_in_tree(path, getenv("KW_FAULT_DIR"));
}

static file *find_file(const char *path) {
  for (int i = 0; i < n_files; i++) {
    if (strcmp(files[i]->path, path) == 0) return files[i];
  }
  if (n_files == FILES) abort();
  file *f = calloc(1, sizeof *f);
  snprintf(f->path, sizeof f->path, "%s", path);
  return files[n_files++] = f;
}

static void forget_ops(file *f) {
  while (f->first != NULL) {
    op *next = f->first->next;
    free(f->first);
    f->first = next;
  }
  f->last = NULL;
}

/* Notes a write before it happens. */
static op *note(file *f, int fd, const void *bytes, size_t len, off_t at, off_t new_size) {
  op *o = calloc(1, sizeof *o + 2 * len);
  *o = (op){.before = f->last, .at = at, .len = len, .old_size = size_of(fd)};
  o->new_size = new_size > o->old_size ? new_size : o->old_size;
  if (len > 0) memcpy(o->bytes, bytes, len);
  int reader = real_open(f->path, O_RDONLY | O_CLOEXEC, 0);
  ssize_t n = len > 0 ? pread(reader, o->bytes + len, len, at) : 0;
  close(reader);
  o->old_len = n > 0 ? (size_t)n : 0;
  if (f->last != NULL) f->last->next = o;
  if (f->first == NULL) f->first = o;
  return f->last = o;
}

static void note_name(const char *path, const char *from) {
  if (n_names == NAMES) abort();
  name *n = calloc(1, sizeof *n);
  snprintf(n->path, sizeof n->path, "%s", path);
  snprintf(n->from, sizeof n->from, "%s", from);
  names[n_names++] = n;
}

/* Makes a name durable: the previous file with this name is removed. */
static void free_name(name *n) {
  if (n->saved[0] != 0) real_unlink(n->saved);
  free(n);
}

static void forget_all(void) {
  for (int i = 0; i < n_files; i++) forget_ops(files[i]);
  while (n_names > 0) free_name(names[--n_names]);
}

static bool is_in(const char *path, const char *dir) {
  size_t len = strlen(dir);
  while (len > 1 && dir[len - 1] == '/') len--;
  const char *slash = strrchr(path, '/');
  return (size_t)(slash - path) == len && strncmp(path, dir, len) == 0;
}

/* Handles the end of a sync of a file, or of a directory. */
static void settle(file *f) {
  int kept = 0;
  forget_ops(f);
  for (int i = 0; i < n_names; i++) {
    if (is_in(names[i]->path, f->path)) {
      free_name(names[i]);
    } else {
      names[kept++] = names[i];
    }
  }
  n_names = kept;
}

/* }====== */

/* {====== The end ====== */

static uint64_t draw(uint64_t n) {
  random_state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t z = random_state;
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (z ^ z >> 31) % n;
}

/* Ends the process, or the machine to which the plan belongs. */
static void die(void) {
  machine *m = has_machines ? machine_of(planned) : NULL;
  if (m != NULL && !m->is_dead) {
    m->is_dead = true;
    m->plan = now;
    now = (plan){0};
  }
  if (has_machines) return;
  kill(getpid(), SIGKILL);
  while (true) pause();
}

/* Writes old bytes. Bytes beyond the old size become zeros. */
static void restore(const file *f, int fd) {
  for (const op *o = f->last; o != NULL; o = o->before)
    real_pwrite(fd, o->bytes + o->len, o->len, o->at);
}

/* Which of the unsynced writes survive: none, all, some whole ones, or some sectors. */
typedef enum mercy { NONE, ALL, SOME, SECTORS } mercy;

/* Writes a sector, or a part of it, if it is to be torn. */
static void write_sector(const op *o, int fd, bool may_tear, off_t at, size_t len) {
  const char *bytes = o->bytes + (at - o->at);
  bool is_torn = may_tear && !o->is_durable && draw(4) == 0;
  size_t from = is_torn && draw(2) == 0 ? draw(len) : 0;
  size_t to = is_torn && from == 0 ? draw(len) : len;
  real_pwrite(fd, bytes + from, to - from, at + (off_t)from);
}

static void write_sectors(const op *o, int fd, bool may_tear, mercy m, off_t size) {
  off_t end = o->at + (off_t)o->len;
  bool comes = m == ALL || (m == SOME && draw(2) == 0);
  if (end > size) end = size;
  for (off_t at = o->at; at < end;) {
    off_t next = (at / SECTOR + 1) * SECTOR;
    if (next > end) next = end;
    if (o->is_durable || comes || (m == SECTORS && draw(2) == 0))
      write_sector(o, fd, may_tear, at, (size_t)(next - at));
    at = next;
  }
}

/* The file keeps its length until lose_end: otherwise a thread that reads the end in a map would kill the process. */
static void lose_writes(file *f) {
  mercy m = (mercy)draw(4);
  bool may_tear = now.tears && has_name(f->path, "journal");
  int fd = f->cut_fd = real_open(f->path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return;
  off_t size = f->first->old_size;
  restore(f, fd);
  for (const op *o = f->first; o != NULL; o = o->next) {
    bool grows = o->is_durable || m == ALL || (m != NONE && draw(2) == 0);
    if (o->new_size > size && grows) size = o->new_size;
    write_sectors(o, fd, may_tear, m, size);
  }
  f->cut_size = size;
}

static void lose_end(file *f) {
  if (f->cut_fd < 0) return;
  real_truncate(f->cut_fd, f->cut_size);
  close(f->cut_fd);
}

static void remove_all(const char *path) {
  char inner[2 * PATH_MAX];
  DIR *dir = opendir(path);
  struct dirent *entry;
  while (dir != NULL && (entry = readdir(dir)) != NULL) {
    snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
    real_unlink(inner);
  }
  if (dir != NULL) closedir(dir);
  if (dir != NULL) rmdir(path);
  real_unlink(path);
}

static bool is_of(const char *path, const char *dir) {
  return dir == NULL || is_in_tree(path, dir);
}

/* Handles the names below a directory; NULL: all names. */
static void lose_names(const char *dir) {
  int n = 0, kept = 0;
  for (int i = 0; i < n_names; i++) n += is_of(names[i]->path, dir);
  int lost = n == 0 ? 0 : n - (int)draw((uint64_t)n + 1);
  for (int i = n_names - 1; i >= 0 && lost > 0; i--) {
    if (!is_of(names[i]->path, dir)) continue;
    lost--;
    if (names[i]->from[0] != 0) {
      real_rename(names[i]->path, names[i]->from);
      if (names[i]->saved[0] != 0) real_rename(names[i]->saved, names[i]->path);
      names[i]->saved[0] = 0;
    } else {
      remove_all(names[i]->path);
    }
  }
  for (int i = 0; i < n_names; i++) {
    if (is_of(names[i]->path, dir)) {
      free_name(names[i]);
    } else {
      names[kept++] = names[i];
    }
  }
  n_names = kept;
}

static void cut(void) {
  if (has_machines) return die(); /* the disk loses its writes when the store is closed */
  random_state = (uint64_t)now.value;
  for (int is_journal = 1; is_journal >= 0;
       is_journal--) { /* the journal is not mapped, so it is first */
    for (int i = 0; i < n_files; i++) {
      if (files[i]->first != NULL && has_name(files[i]->path, "journal") == is_journal)
        lose_writes(files[i]);
    }
  }
  lose_names(NULL);
  for (int i = 0; i < n_files; i++) {
    if (files[i]->first != NULL) lose_end(files[i]);
  }
  die();
}

/* Does what the plan says before a call. Returns true if the call fails. */
static bool strike_before(action a) {
  bool is_end = (a == KILL || a == CUT) && !now.is_after;
  if (a == FAIL) errno = (int)now.value;
  if (a == DEAD || is_end) errno = EIO;
  if (a == KILL && is_end) die();
  if (a == CUT && is_end) cut();
  return a == FAIL || a == DEAD || is_end;
}

static void strike_after(action a) {
  if (a == KILL) die();
  if (a == CUT) cut();
}

/* }====== */

/* {====== Calls ====== */

/* True if the plan is for the disk of a file. */
static bool is_planned(const file *f) {
  return !has_machines || is_in_tree(f->path, planned);
}

/* True if the growth of a file is limited. */
static bool is_limited(const file *f) {
  return now.action == ROOM && is_planned(f);
}

/* Returns how many of `more` bytes a file can grow by, and takes them from the room. */
static off_t take_room(const file *f, off_t more) {
  if (!is_limited(f) || more <= 0) return more;
  if (more > now.room) tell_that_it_struck();
  if (more > now.room) more = now.room;
  now.room -= more;
  return more;
}

/* `syncs`: the written bytes are durable at the end of the call. */
static ssize_t write_file(int fd, const void *bytes, size_t len, off_t at, bool syncs) {
  file *f = fds[fd].file;
  off_t more = at + (off_t)len - size_of(fd);
  bool grows = more > 0;
  note_write(f, at);
  action a = judge(WRITE | (syncs ? SYNC : 0) | (grows ? SIZE : 0), f->path, at);
  if (a == FAIL || a == KILL || a == DEAD) {
    if (strike_before(a)) return -1;
  }
  bool is_flagged = syncs && !fds[fd].syncs; /* by RWF_DSYNC */
  if (a == NOTHING && now.tears && is_planned(f) && is_flagged &&
      ++now.syncing % 5 == now.value % 5)
    a = SHORT;
  if (a == SHORT) len /= 2;
  if (grows) {
    off_t lacking = more - take_room(f, more);
    if (lacking >= (off_t)len && lacking > 0) {
      errno = (int)now.value;
      return -1;
    }
    len -= (size_t)lacking;
  }
  op *o = note(f, fd, bytes, len, at, at + (off_t)len);
  ssize_t n = real_pwrite(fd, bytes, len, at);
  if (a == CUT && !now.is_after) { /* in the middle of the call */
    cut();
    errno = EIO;
    return -1;
  }
  o->is_durable = syncs && a != SHORT;
  strike_after(a);
  note_written(f, at);
  return n;
}

static bool is_ours(int fd) {
  return fd >= 0 && fd < FDS && fds[fd].file != NULL;
}

static ssize_t write_at(int fd, const void *bytes, size_t len, off_t at, bool syncs) {
  pthread_mutex_lock(&mutex);
  ssize_t n = write_file(fd, bytes, len, at, syncs || fds[fd].syncs);
  pthread_mutex_unlock(&mutex);
  return n;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at) {
  return is_ours(fd) ? write_at(fd, bytes, len, at, false) : real_pwrite(fd, bytes, len, at);
}

/* The buffer is aligned, as writes past the page cache have to be. */
static ssize_t gather_at(int fd, const struct iovec *iov, int count, off_t at, bool syncs) {
  size_t len = 0;
  for (int i = 0; i < count; i++) len += iov[i].iov_len;
  char *bytes = aligned_alloc(4096, (len / 4096 + 1) * 4096), *to = bytes;
  for (int i = 0; i < count; i++) to = mempcpy(to, iov[i].iov_base, iov[i].iov_len);
  ssize_t n = write_at(fd, bytes, len, at, syncs);
  free(bytes);
  return n;
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t at) {
  if (!is_ours(fd)) return syscall(SYS_pwritev, fd, iov, count, at, 0);
  return gather_at(fd, iov, count, at, false);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t at, int flags) {
  if (!is_ours(fd)) return syscall(SYS_pwritev2, fd, iov, count, at, 0, flags);
  return gather_at(fd, iov, count, at, (flags & (RWF_DSYNC | RWF_SYNC)) != 0);
}

/* Writes at the offset of the descriptor. */
static ssize_t advance(int fd, ssize_t n) {
  if (n > 0) lseek(fd, n, SEEK_CUR);
  return n;
}

ssize_t write(int fd, const void *bytes, size_t len) {
  if (!is_ours(fd)) return syscall(SYS_write, fd, bytes, len);
  return advance(fd, pwrite(fd, bytes, len, lseek(fd, 0, SEEK_CUR)));
}

ssize_t writev(int fd, const struct iovec *iov, int count) {
  if (!is_ours(fd)) return syscall(SYS_writev, fd, iov, count);
  return advance(fd, pwritev(fd, iov, count, lseek(fd, 0, SEEK_CUR)));
}

/* Waits before a sync of a slow file. */
static void wait_for_disk(int fd) {
  const char *ms = getenv("KW_FAULT_SLOW");
  if (ms == NULL || !has_name(fds[fd].file->path, "data.mdb")) return;
  struct timespec ts = {0, atol(ms) * 1000000};
  nanosleep(&ts, NULL);
}

static int sync_file(int fd) {
  wait_for_disk(fd);
  pthread_mutex_lock(&mutex);
  action a = judge(SYNC, fds[fd].file->path, -1);
  bool fails = strike_before(a);
  if (!fails) settle(fds[fd].file);
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return fails ? -1 : 0;
}

int fsync(int fd) {
  return is_ours(fd) ? sync_file(fd) : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
  return is_ours(fd) ? sync_file(fd) : (int)syscall(SYS_fdatasync, fd);
}

/* Cut bytes are lost at once, with their entries in the log. */
static int resize(int fd, off_t size, int (*change)(int fd, off_t size)) {
  pthread_mutex_lock(&mutex);
  file *f = fds[fd].file;
  action a = judge(SIZE, f->path, -1);
  bool fails = strike_before(a);
  off_t more = size - size_of(fd);
  if (!fails && is_limited(f) && more > now.room) {
    tell_that_it_struck();
    errno = (int)now.value;
    fails = true;
  }
  if (!fails) take_room(f, more);
  if (!fails && size < size_of(fd)) forget_ops(f);
  if (!fails) note(f, fd, "", 0, size, size);
  int rc = fails ? -1 : change(fd, size);
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return rc;
}

int ftruncate(int fd, off_t size) {
  return is_ours(fd) ? resize(fd, size, real_truncate) : real_truncate(fd, size);
}

static int grow(int fd, off_t size) {
  off_t from = size_of(fd);
  return size <= from ? 0 : (int)syscall(SYS_fallocate, fd, 0, from, size - from);
}

int fallocate(int fd, int mode, off_t at, off_t len) {
  if (!is_ours(fd) || mode != 0) return (int)syscall(SYS_fallocate, fd, mode, at, len);
  return at + len <= size_of(fd) ? 0 : resize(fd, at + len, grow);
}

int posix_fallocate(int fd, off_t at, off_t len) {
  int before = errno;
  int rc = fallocate(fd, 0, at, len) == 0 ? 0 : errno;
  errno = before;
  return rc;
}

/* No real sync: only the process dies. */
static int open_file(const char *path, int flags, int mode) {
  pthread_mutex_lock(&mutex);
  bool is_new = (flags & O_CREAT) && access(path, F_OK) < 0;
  note_open(path);
  action a = judge(is_new ? OPEN | NAME : OPEN, path, -1);
  int fd = strike_before(a) ? -1 : real_open(path, flags & ~(O_DSYNC | O_SYNC), mode);
  if (fd >= 0 && fd < FDS) {
    char real[PATH_MAX];
    if (is_new) note_name(path, "");
    fds[fd].file = find_file(realpath(path, real) != NULL ? real : path);
    fds[fd].syncs = (flags & O_DSYNC) != 0;
  }
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return fd;
}

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(args, int) : 0;
  va_end(args);
  return is_below(path) ? open_file(path, flags, mode) : real_open(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(args, int) : 0;
  va_end(args);
  if (is_below(path)) return open_file(path, flags, mode);
  return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int close(int fd) {
  if (fd >= 0 && fd < FDS) fds[fd].file = NULL;
  return (int)syscall(SYS_close, fd);
}

int mkdir(const char *path, mode_t mode) {
  if (!is_below(path)) return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
  pthread_mutex_lock(&mutex);
  action a = judge(NAME, path, -1);
  bool fails = strike_before(a);
  int rc = fails ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
  if (rc == 0) note_name(path, "");
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return rc;
}

static void move(const char *from, const char *to, const char *saved) {
  file *gone = find_file(to), *f = find_file(from);
  forget_ops(gone);
  gone->has_frames = false;
  snprintf(gone->path, PATH_MAX, "%s", from);
  snprintf(f->path, PATH_MAX, "%s", to);
  note_name(to, from);
  snprintf(names[n_names - 1]->saved, PATH_MAX, "%s", saved);
}

/* Does not change errno. */
static void free_saved(const char *saved) {
  int number = errno;
  if (saved[0] != 0) real_unlink(saved);
  errno = number;
}

/* Gives a file that is about to be replaced another name, beside the control file. `saved` stays empty if there is no
 * such file. */
static void save(const char *path, char saved[PATH_MAX]) {
  static int n;
  snprintf(saved, PATH_MAX, "%s.replaced-%d", getenv("KW_FAULT_CONTROL"), n++);
  real_unlink(saved);
  if (link(path, saved) < 0) saved[0] = 0;
}

int rename(const char *from, const char *to) {
  if (!is_below(from)) return real_rename(from, to);
  pthread_mutex_lock(&mutex);
  action a = judge(NAME, to, -1);
  bool fails = strike_before(a);
  char saved[PATH_MAX] = "";
  if (!fails) save(to, saved);
  int rc = fails ? -1 : real_rename(from, to);
  if (rc == 0) move(from, to, saved);
  if (rc != 0) free_saved(saved);
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* A file that was made and removed needs no sync. */
static void forget_name(const char *path) {
  int kept = 0;
  forget_ops(find_file(path));
  for (int i = 0; i < n_names; i++) {
    if (strcmp(names[i]->path, path) != 0) {
      names[kept++] = names[i];
    } else {
      free_name(names[i]);
    }
  }
  n_names = kept;
}

int unlink(const char *path) {
  if (!is_below(path)) return real_unlink(path);
  pthread_mutex_lock(&mutex);
  action a = judge(NAME, path, -1);
  bool fails = strike_before(a);
  int rc = fails ? -1 : real_unlink(path);
  if (rc == 0) forget_name(path);
  strike_after(a);
  pthread_mutex_unlock(&mutex);
  return rc;
}

/* }====== */

/* {====== For Lua ======
 *
 * Functions for package.loadlib, without results.
 */
int kw_fault_fork(void *L);
int kw_fault_wait(void *L);

/* Returns the state of a thread of this process, as ps shows it: 'S' sleeps, 'R' runs; or 'S' if the thread is gone. */
static char state_of(const char *tid) {
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", tid);
  FILE *text = fopen(path, "r");
  if (text == NULL) return 'S';
  const char *after = fgets(line, sizeof line, text) == NULL ? NULL : strrchr(line, ')');
  fclose(text);
  return after == NULL || after[1] == '\0' ? 'S' : after[2];
}

/* True if all other threads of this process sleep. */
static bool others_sleep(void) {
  bool all = true;
  char own[24];
  snprintf(own, sizeof own, "%ld", (long)syscall(SYS_gettid));
  DIR *threads = opendir("/proc/self/task");
  if (threads == NULL) return true;
  for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
    if (entry->d_name[0] == '.' || strcmp(entry->d_name, own) == 0) continue;
    if (state_of(entry->d_name) == 'R') all = false;
  }
  closedir(threads);
  return all;
}

/* Forks while the other threads sleep: a lock of another thread would stay locked in the child forever, and neither a
 * sanitizer's allocator nor libgcc unlock theirs. Forks after a second even if a thread runs. */
int kw_fault_fork(void *L) {
  (void)L;
  for (int i = 0, calm = 0; i < 1000 && calm < 3; i++) {
    calm = others_sleep() ? calm + 1 : 0;
    usleep(1000);
  }
  fork();
  return 0;
}

int kw_fault_wait(void *L) {
  (void)L;
  wait(NULL);
  return 0;
}

/* }====== */

/* {====== Machines of this process ====== */

/* Functions of the process's Lua VM. */
const char *lua_tolstring(void *L, int index, size_t *len) __attribute__((weak));
void lua_pushstring(void *L, const char *text) __attribute__((weak));
int kw_fault_machine(void *L);

/* Returns the machine with a directory. Makes it at the first call. */
static machine *get_machine(const char *path) {
  machine *free_one = NULL;
  for (int i = 0; i < MACHINES; i++) {
    if (strcmp(machines[i].path, path) == 0) return &machines[i];
    if (machines[i].path[0] == 0 && free_one == NULL) free_one = &machines[i];
  }
  if (free_one == NULL) abort();
  snprintf(free_one->path, PATH_MAX, "%s", path);
  return free_one;
}

static void revive(machine *m, bool has_seed, uint64_t seed) {
  plan before = now;
  now = m->plan;
  if (has_seed || now.action == CUT) {
    random_state = has_seed ? seed : (uint64_t)now.value;
    for (int i = 0; i < n_files; i++) {
      if (files[i]->first == NULL || !is_in_tree(files[i]->path, m->path)) continue;
      lose_writes(files[i]);
      lose_end(files[i]);
      forget_ops(files[i]);
    }
    lose_names(m->path);
  }
  now = before;
  m->is_dead = false;
  m->plan = (plan){0};
}

static void forget_machines(void) {
  forget_all();
  memset(machines, 0, sizeof machines);
  memset(fds, 0, sizeof fds);
  while (n_files > 0) free(files[--n_files]);
  now = (plan){0};
}

static void limit_time(long seconds) {
  struct itimerval limit = {.it_value = {.tv_sec = seconds}};
  setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

static const char *memory(void) {
  static char text[32];
  struct mallinfo2 all = mallinfo2();
  snprintf(text, sizeof text, "%zu", all.uordblks + all.hblkhd);
  return text;
}

static const char *command(char *line) {
  char *what = strtok(line, " "), *path = strtok(NULL, " "), *rest = strtok(NULL, "");
  bool is_killed = strcmp(what, "kill") == 0;
  has_machines = true;
  if (strcmp(what, "forget") == 0) forget_machines();
  if (strcmp(what, "clock") == 0) clock_ns = atoll(path);
  if (strcmp(what, "random") == 0) entropy = strtoull(path, NULL, 10) + 1;
  if (strcmp(what, "limit") == 0) limit_time(atol(path));
  if (strcmp(what, "memory") == 0) return memory();
  if (strcmp(what, "plan") == 0) get_machine(path);
  if (strcmp(what, "plan") == 0 || is_killed) {
    snprintf(planned, sizeof planned, "%s", path);
    now = parse(rest == NULL ? "" : rest);
  }
  if (is_killed) get_machine(path);
  if (is_killed) die();
  if (strcmp(what, "is_dead") == 0) return get_machine(path)->is_dead ? "yes" : "no";
  if (strcmp(what, "revive") == 0)
    revive(get_machine(path), rest != NULL, rest == NULL ? 0 : strtoull(rest, NULL, 10));
  return "";
}

int kw_fault_machine(void *L) {
  char line[PATH_MAX + 128];
  snprintf(line, sizeof line, "%s", lua_tolstring(L, 1, NULL));
  pthread_mutex_lock(&mutex);
  const char *result = command(line);
  pthread_mutex_unlock(&mutex);
  lua_pushstring(L, result);
  return 1;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  bool is_of_process = id == CLOCK_PROCESS_CPUTIME_ID || id == CLOCK_THREAD_CPUTIME_ID;
  if (clock_ns < 0 || is_of_process) return (int)syscall(SYS_clock_gettime, id, ts);
  *ts = (struct timespec){clock_ns / 1000000000, clock_ns % 1000000000};
  return 0;
}

ssize_t getrandom(void *bytes, size_t len, unsigned flags) {
  if (entropy == 0) return syscall(SYS_getrandom, bytes, len, flags);
  uint64_t before = random_state;
  random_state = entropy;
  for (size_t i = 0; i < len; i++) ((unsigned char *)bytes)[i] = (unsigned char)draw(256);
  entropy = random_state;
  random_state = before;
  return (ssize_t)len;
}

/* }====== */

/* {====== A host with its own handling of SIGINT ======
 *
 * Functions for package.loadlib, too.
 */
int kw_fault_ignore_interrupts(void *L);
int kw_fault_handle_interrupts(void *L);

int kw_fault_ignore_interrupts(void *L) {
  (void)L;
  signal(SIGINT, SIG_IGN);
  return 0;
}

static void on_interrupt(int number, siginfo_t *info, void *context) {
  (void)context;
  const char *text = info->si_signo == number ? "handled\n" : "not told\n";
  if (write(STDOUT_FILENO, text, strlen(text)) < 0) abort();
}

int kw_fault_handle_interrupts(void *L) {
  struct sigaction handling = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO | SA_RESTART};
  (void)L;
  sigaction(SIGINT, &handling, NULL);
  return 0;
}

/* }====== */

/* {====== The same calls by their other names ====== */

ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off64_t) __attribute__((alias("pwritev")));
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
int posix_fallocate64(int, off64_t, off64_t) __attribute__((alias("posix_fallocate")));
int open64(const char *, int, ...) __attribute__((alias("open")));
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));

/* }====== */
