/* AVX2 and FMA. */
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>

#include "job.h"

#if defined(__x86_64__)
#ifndef SIRGCN_LOWER_VECTORS /* a test build: wide vectors on any machine */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#endif
#define ISA(x) avx2_##x
#define BYTES 32
#define WIDE_TILE 10
#define WIDE_SLOPE_TILE 6
#define TALL_ROWS 6
#define WIDE_ROWS 4
#include "isa.h"
#if defined(__clang__) && !defined(SIRGCN_LOWER_VECTORS)
#pragma clang attribute pop
#endif
#endif
