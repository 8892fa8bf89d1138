// kernels/cuda/jit_cache.cu -- compiled code on disk, one file for each key. A file is
// written beside its place and renamed, so that others see all of it or nothing. Those that
// were not used for the longest time are removed where all of them take too much.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <ctime>
#include <set>
#include <vector>
#include "kernels/cuda/jit.cuh"

namespace {

constexpr char magic[] = "mytensor code 1\n";
constexpr size_t most = size_t(1) << 30; // bytes of a file; what is larger is damaged

uint64_t hash(const std::string &s, uint64_t h) { // FNV-1a
  for (unsigned char c : s) h = (h ^ c) * UINT64_C(1099511628211);
  return h;
}
constexpr uint64_t seed = UINT64_C(14695981039346656037);

struct header {
  char magic[sizeof ::magic];
  uint64_t key_bytes, code_bytes, check;
};

uint64_t check_of(const std::string &key, const std::string &code) {
  return hash(code, hash(key, seed));
}

// "": nothing is kept.
std::string folder() {
  if (const char *named = getenv("MYTENSOR_CACHE"))
    if (*named) return strcmp(named, "off") ? named : "";
  const char *base = getenv("XDG_CACHE_HOME");
  if (base && *base == '/') return std::string(base) + "/mytensor";
  const char *home = getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache/mytensor" : "";
}

std::string path_of(const std::string &in, const std::string &key) {
  char name[64];
  snprintf(name, sizeof name, "/%016llx%016llx.cubin",
           (unsigned long long)hash(key, seed), (unsigned long long)hash(key, ~seed));
  return in + name;
}

// The folder and those above it.
bool make_folder(const std::string &path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    if (mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (at == std::string::npos) return true;
  }
}

bool read_file(const std::string &path, std::string *content) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info;
  bool ok =
      fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && size_t(info.st_size) <= most;
  content->resize(ok ? size_t(info.st_size) : 0);
  for (size_t done = 0; ok && done < content->size();) {
    const ssize_t n = read(fd, &(*content)[done], content->size() - done);
    if (n < 0 && errno == EINTR) continue;
    ok = n > 0;
    done += ok ? size_t(n) : 0;
  }
  close(fd);
  return ok;
}

bool write_all(int fd, const void *p, size_t bytes) {
  for (const char *at = static_cast<const char *>(p); bytes > 0;) {
    const ssize_t n = write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= size_t(n);
  }
  return true;
}

// 0, or the error's number.
int write_file(const std::string &path, const std::string &key,
               const std::string &code) {
  static std::atomic<unsigned> count;
  const std::string beside =
      path + "." + std::to_string(getpid()) + "." + std::to_string(count++);
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  header h = {};
  memcpy(h.magic, magic, sizeof magic);
  h.key_bytes = key.size(), h.code_bytes = code.size(), h.check = check_of(key, code);
  errno = 0;
  bool ok = write_all(fd, &h, sizeof h) && write_all(fd, key.data(), key.size()) &&
            write_all(fd, code.data(), code.size());
  int error = ok ? 0 : errno ? errno : EIO;
  if (close(fd) != 0 && !error) error = errno;
  if (!error && rename(beside.c_str(), path.c_str()) != 0) error = errno;
  if (error) unlink(beside.c_str());
  return error;
}

// ---- the bound ----------------------------------------------------------------------

constexpr time_t hour = 3600;

// Bytes that all files may have.
uint64_t limit_of_all() {
  const char *named = getenv("MYTENSOR_CACHE_LIMIT");
  const uint64_t bytes = named ? strtoull(named, nullptr, 10) : 0;
  return bytes ? bytes : UINT64_C(256) << 20;
}

// The modification time tells when a file was last used, an hour more or less.
void note_use(const std::string &path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && info.st_mtime < time(nullptr) - hour)
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

struct cached {
  std::string name;
  time_t used;
  uint64_t bytes;
};

// Is it the name of a file that is written here: 32 digits and ".cubin"? partial: with more
// behind that, not renamed yet.
bool is_ours(const std::string &name, bool *partial) {
  constexpr size_t digits = 32, length = digits + 6;
  if (name.find_first_not_of("0123456789abcdef") != digits) return false;
  *partial = name.size() > length;
  return name.compare(digits, 6, ".cubin") == 0 &&
         (!*partial ||
          name.find_first_not_of("0123456789.", length) == std::string::npos);
}

// The files, and what others began long ago and left.
std::vector<cached> list_files(DIR *d) {
  std::vector<cached> files;
  while (const dirent *entry = readdir(d)) {
    struct stat info;
    bool partial;
    if (!is_ours(entry->d_name, &partial) ||
        fstatat(dirfd(d), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (!partial)
      files.push_back({entry->d_name, info.st_mtime, uint64_t(info.st_size)});
    else if (info.st_mtime < time(nullptr) - hour)
      unlinkat(dirfd(d), entry->d_name, 0);
  }
  return files;
}

} // namespace

void jit_cache_trim(const std::string &in, uint64_t limit) {
  DIR *const d = opendir(in.c_str());
  if (!d) return;
  std::vector<cached> files = list_files(d);
  uint64_t all = 0;
  for (const cached &f : files) all += f.bytes;
  if (all > limit) {
    std::sort(files.begin(), files.end(), [](const cached &a, const cached &b) {
      return a.used != b.used ? a.used < b.used : a.name < b.name;
    });
    files.pop_back(); // the newest
    for (const cached &f : files) {
      if (all <= limit / 4 * 3) break;
      unlinkat(dirfd(d), f.name.c_str(), 0); // whoever reads it has it open
      all -= f.bytes;
    }
  }
  closedir(d);
}

bool jit_cache_read(const std::string &key, std::string *code) {
  const std::string in = folder();
  std::string file;
  header h;
  if (in.empty() || !read_file(path_of(in, key), &file) || file.size() < sizeof h)
    return false;
  memcpy(&h, file.data(), sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) || h.key_bytes != key.size() ||
      h.code_bytes > most || file.size() != sizeof h + h.key_bytes + h.code_bytes ||
      file.compare(sizeof h, key.size(), key))
    return false;
  code->assign(file, sizeof h + key.size(), std::string::npos);
  if (h.check != check_of(key, *code)) return false;
  note_use(path_of(in, key));
  return true;
}

void jit_cache_write(const std::string &key, const std::string &code,
                     std::string *problem) {
  static std::atomic<bool> told;
  const std::string in = folder();
  if (in.empty()) return;
  const int error = make_folder(in) ? write_file(path_of(in, key), key, code) : errno;
  // whoever writes looks about once for each sixteenth of the bound
  const uint64_t limit = limit_of_all(), bytes = key.size() + code.size();
  if (!error && hash(key, seed) % (limit / 16 + 1) < bytes) jit_cache_trim(in, limit);
  if (error && !told.exchange(true))
    *problem = "compiled kernels are not kept: " + in + ": " + strerror(error) +
               " (MYTENSOR_CACHE names another folder, or is off)\n";
}

// ---- what a source includes -------------------------------------------------------------

namespace {

// The value of an option that is written as name=value, name value or, if joined,
// namevalue; nullptr: option i is another.
const char *value_of(const char *const *options, int n, int i, const char *name,
                     bool joined) {
  const size_t length = strlen(name);
  if (strncmp(options[i], name, length)) return nullptr;
  const char *rest = options[i] + length;
  if (*rest == '=') return rest + 1;
  if (!*rest) return i + 1 < n ? options[i + 1] : nullptr;
  return joined ? rest : nullptr;
}

// The folders to look in; the files that come before the source are added to the text.
void read_options(const char *const *options, int n, std::string *text,
                  std::set<std::string> *folders) {
  for (int i = 0; i < n; i++) {
    for (const char *name : {"--include-path", "-I"})
      if (const char *folder = value_of(options, n, i, name, name[1] == 'I'))
        folders->insert(folder);
    for (const char *name : {"--pre-include", "-include"})
      if (const char *file = value_of(options, n, i, name, false))
        *text += std::string("\n#include \"") + file + "\"\n";
  }
}

// Does the # of a directive stand before at?
bool is_directive(const std::string &text, size_t at) {
  const size_t before = at ? text.find_last_not_of(" \t", at - 1) : std::string::npos;
  return before != std::string::npos && text[before] == '#';
}

struct included {
  std::set<std::string> seen;
  std::string all;       // names and contents
  bool computed = false; // a macro names a file
};

void add_included(const std::string &text, const std::set<std::string> &folders,
                  included *result) {
  for (size_t at = text.find("include"); at != std::string::npos;
       at = text.find("include", at + 1)) {
    const size_t from = text.find_first_not_of(" \t(", at + 7); // __has_include(
    if (from == std::string::npos) continue;
    if (text[from] != '"' && text[from] != '<') {
      result->computed = result->computed || is_directive(text, at);
      continue;
    }
    const size_t end = text.find_first_of("\">\n", from + 1);
    if (end == std::string::npos || text[end] == '\n') continue;
    const std::string name = text.substr(from + 1, end - from - 1);
    for (const std::string &folder : folders) {
      const std::string path = folder + "/" + name;
      std::string content;
      if (result->seen.count(path) || !read_file(path, &content)) continue;
      result->seen.insert(path);
      std::set<std::string> inner = folders;
      inner.insert(path.substr(0, path.rfind('/')));
      result->all += path + "\n" + std::to_string(content.size()) + "\n" + content;
      add_included(content, inner, result);
    }
  }
}

} // namespace

bool jit_included(const std::string &source, const char *const *options, int noptions,
                  std::string *all) {
  std::set<std::string> folders;
  std::string text = source;
  included result;
  folders.insert("."); // NVRTC looks in the working directory, too
  read_options(options, noptions, &text, &folders);
  add_included(text, folders, &result);
  *all += result.all;
  return !result.computed;
}

const std::vector<std::string> &jit_toolkit_folders(const std::string &beside) {
  static const std::vector<std::string> found = [&] {
    const char *home = getenv("CUDA_HOME");
    const std::string folders[] = {home ? std::string(home) + "/include" : "",
                                   "/usr/local/cuda/include",
                                   "/usr/local/cuda/targets/x86_64-linux/include",
                                   beside + "include/cuda", beside + "../include/cuda"};
    std::vector<std::string> options;
    for (const std::string &folder : folders) {
      if (access((folder + "/cuda_fp16.h").c_str(), R_OK) != 0) continue;
      options.push_back("-I" + folder);
      if (access((folder + "/cccl").c_str(), R_OK) == 0)
        options.push_back("-I" + folder + "/cccl");
      break;
    }
    return options;
  }();
  return found;
}
