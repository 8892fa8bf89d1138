// kernels/cuda/jit.cuh -- kernels compiled while the program runs: what jit.cu, its cache
// and device.cu know of each other.
#ifndef MT_CUDA_JIT_CUH
#define MT_CUDA_JIT_CUH

#include <string>
#include <vector>
#include "kernels/toolchain.h"

extern const mt_toolchain cuda_toolchain;

// The same name, for as long as the process lives.
const char *jit_lasting(const char *name);
// A kernel was launched. name lives as long as the process.
void jit_note_launch(int device, void *stream, const char *name);
// Which of these kernels ran on the device since it was last waited for, as a text to put
// behind the name of an error; "" if none did.
void jit_suspects(int device, char *text, size_t size);
// All that the device was given on stream is done.
void jit_synchronized(int device, void *stream, bool all_streams);

// What was compiled for a key, which holds all that the result depends on. False: it is not
// there, or damaged.
bool jit_cache_read(const std::string &key, std::string *code);
// Keep it. What is in the way is told once in a process, in *problem.
void jit_cache_write(const std::string &key, const std::string &code,
                     std::string *problem);
// Remove files of this folder, the least recently used first, where all of them have more
// bytes than limit: until three quarters of it are left. Others may use them meanwhile.
void jit_cache_trim(const std::string &in, uint64_t limit);
// Add to a key the files that a source includes from folders of its own. False: a macro
// names one, so that nobody knows which.
bool jit_included(const std::string &source, const char *const *options, int noptions,
                  std::string *key);
// Where the toolkit's headers are (cuda_fp16.h, cuda_bf16.h, mma.h, cuda/std), as options:
// in the toolkit, or else beside the plugin.
const std::vector<std::string> &jit_toolkit_folders(const std::string &beside);

#endif
