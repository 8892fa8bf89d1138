/* spec/support/gomp.c -- the part of OpenMP that we use, by pthreads, for ThreadSanitizer:
** it sees these begin and end, while those of libgomp look to it like races. */
#include <pthread.h>

#define MOST 64

void GOMP_parallel(void (*fn)(void *), void *data, unsigned count, unsigned flags);
int omp_get_num_threads(void);
int omp_get_thread_num(void);

static _Thread_local int team = 1, number;

typedef struct member {
  void (*fn)(void *);
  void *data;
  int team, number;
} member;

static void *run(void *user) {
  const member *m = user;
  team = m->team, number = m->number;
  m->fn(m->data);
  return NULL;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned count, unsigned flags) {
  const int outer_team = team, outer_number = number;
  member members[MOST];
  pthread_t thread[MOST];
  (void)flags;
  if (outer_team > 1 || count == 0) count = 1; /* no nesting */
  if (count > MOST) count = MOST;
  for (unsigned i = 0; i < count; i++)
    members[i] = (member){fn, data, (int)count, (int)i};
  for (unsigned i = 1; i < count; i++)
    if (pthread_create(&thread[i], NULL, run, &members[i]) != 0) __builtin_trap();
  run(&members[0]);
  for (unsigned i = 1; i < count; i++) pthread_join(thread[i], NULL);
  team = outer_team, number = outer_number;
}

int omp_get_num_threads(void) { return team; }

int omp_get_thread_num(void) { return number; }
