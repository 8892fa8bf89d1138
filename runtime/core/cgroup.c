/* runtime/core/cgroup.c -- what the control groups of this process allow: memory and
** processors. Both versions of control groups; of nested ones the least counts. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "runtime/core/cgroup.h"

#define PATH_ROOM 1024

/* Reads the numbers of a file's first line; returns how many there are, at most two.
** "max" is none. */
static int read_numbers(const char *root, const char *folder, const char *path,
                        const char *name, long long number[2]) {
  char full[3 * PATH_ROOM], line[128];
  const int n = snprintf(full, sizeof full, "%s%s%s/%s", root, folder, path, name);
  if (n < 0 || (size_t)n >= sizeof full) return 0;
  FILE *f = fopen(full, "r");
  if (!f) return 0;
  int found = 0;
  if (fgets(line, sizeof line, f))
    found = sscanf(line, "%lld %lld", number, number + 1);
  fclose(f);
  return found > 0 ? found : 0;
}

/* What one group allows; INT64_MAX, where it does not say. */
typedef int64_t (*group_fn)(const char *root, const char *folder, const char *path);

static int64_t memory_of_v2(const char *root, const char *folder, const char *path) {
  long long n[2];
  return read_numbers(root, folder, path, "memory.max", n) ? n[0] : INT64_MAX;
}

static int64_t memory_of_v1(const char *root, const char *folder, const char *path) {
  long long n[2];
  return read_numbers(root, folder, path, "memory.limit_in_bytes", n) ? n[0]
                                                                      : INT64_MAX;
}

static int64_t processors(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return INT64_MAX;
  return quota / period + (quota % period != 0);
}

static int64_t processors_of_v2(const char *root, const char *folder,
                                const char *path) {
  long long n[2];
  return read_numbers(root, folder, path, "cpu.max", n) == 2 ? processors(n[0], n[1])
                                                             : INT64_MAX;
}

static int64_t processors_of_v1(const char *root, const char *folder,
                                const char *path) {
  long long quota[2], period[2];
  if (!read_numbers(root, folder, path, "cpu.cfs_quota_us", quota) ||
      !read_numbers(root, folder, path, "cpu.cfs_period_us", period))
    return INT64_MAX;
  return processors(quota[0], period[0]);
}

/* The least of a group and those that it lies in. In a container the path may lead
** nowhere, as it is the host's: then the root is the container's own group. */
static int64_t least(const char *root, const char *folder, char *path, group_fn fn) {
  int64_t result = INT64_MAX;
  for (;;) {
    const int64_t here = fn(root, folder, path);
    if (here < result) result = here;
    char *const slash = strrchr(path, '/');
    if (!slash) return result;
    *slash = '\0';
  }
}

/* Does the list a,b,c name the controller? */
static bool names(const char *list, const char *controller) {
  const size_t n = strlen(controller);
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, controller, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
  return false;
}

static int64_t allowed(const char *root, const char *controller, group_fn v1,
                       group_fn v2) {
  char full[2 * PATH_ROOM], line[2 * PATH_ROOM];
  int64_t result = INT64_MAX;
  snprintf(full, sizeof full, "%.1000s/proc/self/cgroup", root);
  FILE *f = fopen(full, "r");
  while (f && fgets(line, sizeof line, f)) { /* number:controllers:path */
    line[strcspn(line, "\n")] = '\0';
    char *const list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path || strlen(path) >= PATH_ROOM) continue;
    *path++ = '\0';
    if (strcmp(path, "/") == 0) *path = '\0';
    char folder[PATH_ROOM] = "/sys/fs/cgroup";
    const bool second = list[1] == '\0';
    if (!second && !names(list + 1, controller)) continue;
    if (!second) snprintf(folder, sizeof folder, "/sys/fs/cgroup/%.900s", list + 1);
    const int64_t here = least(root, folder, path, second ? v2 : v1);
    if (here < result) result = here;
  }
  if (f) fclose(f);
  return result;
}

static int64_t machine_bytes(const char *root) {
  char path[1100], line[128];
  long long kilobytes = INT64_MAX >> 11;
  snprintf(path, sizeof path, "%.1000s/proc/meminfo", root);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemTotal: %lld kB", &kilobytes) == 1) break;
  if (f) fclose(f);
  return (int64_t)kilobytes * 1024;
}

int64_t mt_default_memory_limit(const char *root) {
  const int64_t machine = machine_bytes(root);
  const int64_t group = allowed(root, "memory", memory_of_v1, memory_of_v2);
  return (group < machine ? group : machine) / 10 * 9;
}

int mt_cgroup_processors(const char *root) {
  const int64_t n = allowed(root, "cpu", processors_of_v1, processors_of_v2);
  return n < INT_MAX ? (int)n : INT_MAX;
}
