/* runtime/core/guard.c -- bytes around blocks that show who wrote beyond them. */
#include "runtime/core/guard.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK UINT64_C(0xFDFDFDFDFDFD0000) /* and the number of the op that it is for */

static _Thread_local uint16_t current; /* the op, as an index of `names` */
static const char *names[1 << 10] = {"no op"};
static int64_t overruns[1 + MT_MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool on;

static void read_environment(void) {
  const char *text = getenv("MYTENSOR_GUARD");
  on = text && *text && strcmp(text, "0") != 0;
}

bool mt_guard_on(void) {
  pthread_once(&once, read_environment);
  return on;
}

void mt_guard_name(const char *op) {
  if (!mt_guard_on()) return;
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < (1 << 10) - 1 && names[i] && names[i] != op) i++;
  names[i] = op;
  pthread_mutex_unlock(&lock);
  current = (uint16_t)i;
}

/* Copy MT_GUARD_BYTES; false where the device is no longer there. */
static bool move(mt_device device, void *stream, mt_copy_kind kind, void *dst,
                 const void *src) {
  if (device.kind == MT_CPU) {
    memcpy(dst, src, MT_GUARD_BYTES);
    return true;
  }
  return mt_backend_of(device)->device->copy(device.index, stream, kind, dst, src,
                                             MT_GUARD_BYTES, 0) == MT_OK;
}

void *mt_guard_arm(mt_device device, void *stream, void *p, size_t bytes) {
  uint64_t mark[MT_GUARD_BYTES / 8];
  char *start = (char *)p + MT_GUARD_BYTES;
  for (size_t i = 0; i < MT_GUARD_BYTES / 8; i++) mark[i] = MARK | current;
  move(device, stream, MT_COPY_TO_DEVICE, p, mark);
  move(device, stream, MT_COPY_TO_DEVICE, start + bytes, mark);
  return start;
}

/* Tell how many of a side's bytes changed, and where the first and last of them lie. */
static bool look(mt_device device, const uint64_t *mark, int64_t from, size_t bytes) {
  /* what was there: the mark that most of the words still show */
  uint64_t right = MARK;
  int most = 0;
  for (size_t i = 0; i < MT_GUARD_BYTES / 8; i++) {
    int same = 0;
    for (size_t k = 0; k < MT_GUARD_BYTES / 8; k++) same += mark[k] == mark[i];
    if ((mark[i] & ~UINT64_C(0xFFFF)) == MARK && same > most) {
      right = mark[i];
      most = same;
    }
  }
  const unsigned char *byte = (const unsigned char *)mark;
  const unsigned char *expected = (const unsigned char *)&right;
  int64_t changed = 0, first = 0, last = 0;
  for (int64_t k = 0; k < MT_GUARD_BYTES; k++)
    if (byte[k] != expected[k % 8]) {
      if (changed++ == 0) first = k;
      last = k;
    }
  if (changed == 0) return false;
  const char *op = names[right & ((1 << 10) - 1)];
  fprintf(
      stderr,
      "mytensor: guard: %lld byte%s %s a block of %zu byte%s on %s, made for %s, %s "
      "overwritten: offsets %lld to %lld\n",
      (long long)changed, changed == 1 ? "" : "s", from < 0 ? "before" : "behind",
      bytes, bytes == 1 ? "" : "s", mt_device_name(device), op ? op : names[0],
      changed == 1 ? "was" : "were", (long long)(from + first),
      (long long)(from + last));
  return true;
}

void *mt_guard_disarm(mt_device device, void *p, size_t bytes) {
  uint64_t before[MT_GUARD_BYTES / 8], behind[MT_GUARD_BYTES / 8];
  char *start = (char *)p - MT_GUARD_BYTES;
  if ((device.kind == MT_CPU ||
       mt_backend_of(device)->device->device_synchronize(device.index) == MT_OK) &&
      move(device, NULL, MT_COPY_TO_HOST, before, start) &&
      move(device, NULL, MT_COPY_TO_HOST, behind, (char *)p + bytes)) {
    bool bad = look(device, before, -MT_GUARD_BYTES, bytes);
    bad |= look(device, behind, (int64_t)bytes, bytes);
    if (bad)
      __atomic_fetch_add(&overruns[device.kind == MT_CPU ? 0 : 1 + device.index], 1,
                         __ATOMIC_RELAXED);
  }
  return start;
}

int64_t mt_guard_overruns(mt_device device) {
  return __atomic_load_n(&overruns[device.kind == MT_CPU ? 0 : 1 + device.index],
                         __ATOMIC_RELAXED);
}
