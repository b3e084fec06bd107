/* How many threads a net's loops use: the pool (tec/codegen/support/pool.py) is one for the library, and a caller may ask for fewer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

#define MOST 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int32_t pool_threads; /* what the pool was set to */
static pthread_key_t key;    /* of each thread: how many its loops use, 0 where nobody said */
static int has_key;
static pid_t process;

int32_t tec_default_threads(void) {
  const char *text = getenv("TEC_NUM_THREADS");
  if (text && *text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (!*end && n > 0) return n > MOST ? MOST : (int32_t)n;
  }
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MOST ? MOST : n;
}

void tec_grow_pool(int32_t threads) {
  pthread_mutex_lock(&lock);
  if (!has_key) has_key = pthread_key_create(&key, NULL) == 0;
  if (!process) process = getpid();
  if (threads > pool_threads) {
    pool_threads = threads;
    tec_pool_configure(threads);
  }
  pthread_mutex_unlock(&lock);
}

/* A child has no workers. */
void tec_after_fork(void) {
  if (process == getpid()) return;
  pthread_mutex_lock(&lock);
  if (process != getpid()) {
    tec_pool_reset();
    process = getpid();
  }
  pthread_mutex_unlock(&lock);
}

void tec_use_threads(int32_t threads) {
  if (has_key) pthread_setspecific(key, (void *)(intptr_t)threads);
}

typedef struct {
  int32_t (*body)(void *, int64_t, int64_t);
  void *closure;
  int64_t n, parts;
} shares;

/* Parts `begin` to `end` of as many as there are threads. */
static int32_t run_shares(void *closure, int64_t begin, int64_t end) {
  const shares *s = closure;
  int64_t each = s->n / s->parts, more = s->n % s->parts;
  int64_t first = begin * each + (begin < more ? begin : more), last = end * each + (end < more ? end : more);
  return s->body(s->closure, first, last);
}

/* What compiled code calls for a loop that may be shared out. */
__attribute__((visibility("hidden"))) int32_t tec_parallel_work(int32_t (*body)(void *, int64_t, int64_t), void *closure, int64_t n, int64_t clocks) {
  int64_t most = has_key ? (intptr_t)pthread_getspecific(key) : 0;
  if (most == 1) return n > 0 ? body(closure, 0, n) : 0;
  if (most <= 0 || most >= pool_threads || n <= 1) return pool_parallel_work(body, closure, n, clocks);
  shares s = {body, closure, n, most < n ? most : n};
  return pool_parallel_work(run_shares, &s, s.parts, clocks);
}

__attribute__((visibility("hidden"))) int32_t tec_parallel_for(int32_t (*body)(void *, int64_t, int64_t), void *closure, int64_t n) {
  return tec_parallel_work(body, closure, n, INT64_MAX / 2);
}

/* When the library is unloaded: its workers run in its code. */
__attribute__((destructor)) static void end(void) {
  if (process && process == getpid()) tec_pool_stop();
  tec_heap_trim();
  if (has_key) pthread_key_delete(key);
}
