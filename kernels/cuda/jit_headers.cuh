// kernels/cuda/jit_headers.cuh -- what sources may include although NVRTC has no system
// headers.
#ifndef MT_CUDA_JIT_HEADERS_CUH
#define MT_CUDA_JIT_HEADERS_CUH

// Comes before every source.
const char fixed_width[] = "typedef signed char int8_t;\n"
                           "typedef short int16_t;\n"
                           "typedef int int32_t;\n"
                           "typedef long long int64_t;\n"
                           "typedef unsigned char uint8_t;\n"
                           "typedef unsigned short uint16_t;\n"
                           "typedef unsigned int uint32_t;\n"
                           "typedef unsigned long long uint64_t;\n"
                           "typedef long long intptr_t;\n"
                           "typedef unsigned long long uintptr_t;\n";
// Spelled as in CUDA's cuda/std/climits, which may come after it.
const char limits[] = "#pragma once\n"
                      "#define CHAR_BIT 8\n"
                      "#define INT_MIN (-INT_MAX - 1)\n"
                      "#define INT_MAX 0x7fffffff\n"
                      "#define UINT_MAX 0xffffffff\n"
                      "#define LLONG_MIN (-LLONG_MAX - 1)\n"
                      "#define LLONG_MAX 0x7fffffffffffffffLL\n"
                      "#define FLT_MAX 3.402823466e+38f\n"
                      "#define FLT_MIN 1.175494351e-38f\n"
                      "#define FLT_EPSILON 1.192092896e-07f\n"
                      "#define DBL_MAX 1.7976931348623158e+308\n"
                      "#define DBL_MIN 2.2250738585072014e-308\n"
                      "#define DBL_EPSILON 2.2204460492503131e-16\n";
const char *const header_names[] = {"mytensor/fixed_width.h",
                                    "stdint.h",
                                    "cstdint",
                                    "stddef.h",
                                    "cstddef",
                                    "stdio.h",
                                    "cstdio",
                                    "stdlib.h",
                                    "cstdlib",
                                    "string.h",
                                    "cstring",
                                    "math.h",
                                    "cmath",
                                    "assert.h",
                                    "cassert",
                                    "limits.h",
                                    "climits",
                                    "float.h",
                                    "cfloat"};
const char *const headers[] = {fixed_width, "",     "",     "",     "",    "", "",
                               "",          "",     "",     "",     "",    "", "",
                               "",          limits, limits, limits, limits};
constexpr int nheaders = sizeof headers / sizeof *headers;
static_assert(sizeof headers == sizeof header_names, "a header without a name");

#endif
