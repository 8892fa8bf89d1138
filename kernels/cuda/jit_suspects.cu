// kernels/cuda/jit_suspects.cu -- an illegal address is noticed when somebody waits for the
// device: what was compiled at run time and ran since the last time is to blame.
#include <cstdio>
#include <mutex>
#include <new>
#include <set>
#include "kernels/cuda/jit.cuh"

namespace {

constexpr int max_gpus = 16, most = 4;

struct suspect {
  const char *name; // lives as long as the process
  void *stream;
};

struct {
  std::mutex lock;
  suspect list[most];
  int n;
  bool more; // others ran, too
} recent[max_gpus];

} // namespace

const char *jit_lasting(const char *name) {
  static std::mutex lock;
  static std::set<std::string> names;
  std::lock_guard<std::mutex> hold(lock);
  try {
    return names.insert(name).first->c_str();
  } catch (const std::bad_alloc &) {
    return "?";
  }
}

void jit_note_launch(int device, void *stream, const char *name) {
  auto &r = recent[device];
  std::lock_guard<std::mutex> hold(r.lock);
  for (int i = 0; i < r.n; i++)
    if (r.list[i].name == name && r.list[i].stream == stream) return;
  if (r.n == most)
    r.more = true;
  else
    r.list[r.n++] = {name, stream};
}

void jit_suspects(int device, char *text, size_t size) {
  auto &r = recent[device];
  std::lock_guard<std::mutex> hold(r.lock);
  const char *before =
      r.n > 1 || r.more ? " in one of the kernels " : " in the kernel ";
  text[0] = '\0';
  size_t used = 0;
  for (int i = 0; i < r.n && used < size; i++, before = ", ")
    used +=
        size_t(snprintf(text + used, size - used, "%s%.40s", before, r.list[i].name));
  if (r.more && used < size) snprintf(text + used, size - used, ", ...");
}

void jit_synchronized(int device, void *stream, bool all_streams) {
  auto &r = recent[device];
  std::lock_guard<std::mutex> hold(r.lock);
  int kept = 0;
  for (int i = 0; i < r.n && !all_streams; i++)
    if (r.list[i].stream != stream) r.list[kept++] = r.list[i];
  if (kept == 0) r.more = false;
  r.n = kept;
}
