/* AVX-512. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>

#include "job.h"

#if defined(__x86_64__)
#ifndef SIRGCN_LOWER_VECTORS /* a test build: wide vectors on any machine */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#endif
#define ISA(x) avx512_##x
#define BYTES 64
#define WIDE_TILE 8
#define WIDE_SLOPE_TILE 8
#define TALL_ROWS 12
#define WIDE_ROWS 8
#include "isa.h"
#if defined(__clang__) && !defined(SIRGCN_LOWER_VECTORS)
#pragma clang attribute pop
#endif
#endif
