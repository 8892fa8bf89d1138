/* kernels/cpu/bind.c -- keeps the threads of a team on cores of their own.
**
** A team of as many threads as there are cores leaves the scheduler no choice, but it
** takes milliseconds to find that out: two threads that woke on one core share it that
** long. So each worker is bound to a core, and the one that calls, which stays free to
** move (what it starts inherits its cores), finds the cores that it does not use: when it
** has moved, the worker there changes places with it. Smaller teams are left alone,
** since another process may need the core that a worker would be bound to; so are
** those of a program with several calling threads, and whatever OMP_PROC_BIND,
** OMP_PLACES or GOMP_CPU_AFFINITY say. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernels/cpu/cpu.h"

#ifdef __SANITIZE_THREAD__ /* there each region has threads of its own */
int mt_cpu_team(int threads) { return threads; }
#else

#include <omp.h>

#define MOST 256 /* cores; larger teams are left alone */

typedef struct worker {
  pid_t id; /* 0: this place is free */
  int core;
} worker;

static struct {
  pthread_mutex_t lock;
  worker worker[MOST];
  cpu_set_t cores; /* that the process may use */
  int ncores;
  int nworkers; /* that are bound; read without the lock */
  int core;     /* of the caller, when it was looked at last; so is this */
  int off;      /* for good; so is this */
  char *caller; /* a variable of that thread's own; NULL: none yet; so is this */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local char mine; /* whose address tells threads apart */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor runs at the end of a worker or caller */

static int is_set(const char *name) {
  const char *text = getenv(name);
  return text != NULL && *text != '\0';
}

static pid_t own_id(void) { return (pid_t)syscall(SYS_gettid); }

static void thread_ends(void *value) {
  worker *const w = value;
  pthread_mutex_lock(&state.lock);
  if (w == state.worker + MOST) { /* the caller */
    __atomic_store_n(&state.caller, NULL, __ATOMIC_RELAXED);
  } else if (w->id == own_id()) { /* else the place was given to another one */
    w->id = 0;
    __atomic_fetch_sub(&state.nworkers, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&state.lock);
}

static void start(void) {
  state.off = pthread_key_create(&key, thread_ends) != 0 || is_set("OMP_PROC_BIND") ||
              is_set("OMP_PLACES") || is_set("GOMP_CPU_AFFINITY");
}

static void bind(pid_t id, int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(id, sizeof one, &one);
}

/* Let all workers go where the process may. The lock is held. */
static void release_workers(void) {
  for (int i = 0; i < MOST; i++)
    if (state.worker[i].id != 0) {
      sched_setaffinity(state.worker[i].id, sizeof state.cores, &state.cores);
      state.worker[i].id = 0;
    }
  __atomic_store_n(&state.nworkers, 0, __ATOMIC_RELAXED);
}

/* A worker of the team takes a core that neither the caller nor another one has. */
static void bind_worker(void) {
  const worker *w = pthread_getspecific(key);
  const pid_t id = own_id();
  pthread_mutex_lock(&state.lock);
  if (w == NULL || w->id != id) {
    cpu_set_t left = state.cores;
    int place = -1, core = 0;
    CPU_CLR(state.core, &left);
    for (int i = MOST - 1; i >= 0; i--) {
      if (state.worker[i].id != 0)
        CPU_CLR(state.worker[i].core, &left);
      else
        place = i;
    }
    while (core < CPU_SETSIZE && !CPU_ISSET(core, &left)) core++;
    if (place >= 0 && core < CPU_SETSIZE) {
      state.worker[place] = (worker){id, core};
      bind(0, core);
      pthread_setspecific(key, &state.worker[place]);
      __atomic_fetch_add(&state.nworkers, 1, __ATOMIC_RELAXED);
    }
  }
  pthread_mutex_unlock(&state.lock);
}

/* The caller runs on another core than before: the worker there goes to the old one. The
** lock is held. */
static void change_places(int core) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return;
  if (!CPU_EQUAL(&cores, &state.cores)) { /* somebody has changed what we may use */
    state.cores = cores;
    state.ncores = CPU_COUNT(&cores);
    release_workers();
  }
  for (int i = 0; i < MOST; i++)
    if (state.worker[i].id != 0 && state.worker[i].core == core) {
      bind(state.worker[i].id, state.core);
      state.worker[i].core = state.core;
    }
}

/* Is this thread the only one that asks for teams? The lock is held. */
static int is_caller(void) {
  if (state.caller == NULL) {
    __atomic_store_n(&state.caller, &mine, __ATOMIC_RELAXED);
    pthread_setspecific(key, state.worker + MOST);
    release_workers();
    state.ncores = 0;
    if (sched_getaffinity(0, sizeof state.cores, &state.cores) == 0)
      state.ncores = CPU_COUNT(&state.cores);
  } else if (state.caller != &mine) {
    release_workers();
    __atomic_store_n(&state.off, 1, __ATOMIC_RELAXED);
  }
  return !state.off;
}

int mt_cpu_team(int threads) {
  pthread_once(&once, start);
  if (threads < 2 || __atomic_load_n(&state.off, __ATOMIC_RELAXED) || omp_in_parallel())
    return threads;
  const int here = sched_getcpu();
  if (__atomic_load_n(&state.caller, __ATOMIC_RELAXED) == &mine &&
      __atomic_load_n(&state.core, __ATOMIC_RELAXED) == here &&
      (threads != state.ncores ||
       __atomic_load_n(&state.nworkers, __ATOMIC_RELAXED) == threads - 1))
    return threads;
  pthread_mutex_lock(&state.lock);
  const int bound = is_caller();
  if (bound && here != state.core) change_places(here);
  __atomic_store_n(&state.core, here, __ATOMIC_RELAXED);
  const int missing = bound && threads == state.ncores && threads <= MOST &&
                      CPU_ISSET(here, &state.cores) && state.nworkers != threads - 1;
  pthread_mutex_unlock(&state.lock);
  if (missing) {
#pragma omp parallel num_threads(threads)
    if (omp_get_thread_num() > 0) bind_worker();
    /* Teams that come out smaller, time and again, are somebody else's to arrange. */
    static int failures;
    if (__atomic_load_n(&state.nworkers, __ATOMIC_RELAXED) != threads - 1 &&
        ++failures == 10)
      __atomic_store_n(&state.off, 1, __ATOMIC_RELAXED);
  }
  return threads;
}

#endif
