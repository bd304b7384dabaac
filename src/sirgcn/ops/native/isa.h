/* The kernels of one instruction set, for all dtypes: the template of the isa_*.c files. These must be defined before:
   - ISA(x), which makes names
   - TARGET, what the compiler may use beyond the platform's baseline; x86 only
   - BYTES of a vector, WIDE_TILE and WIDE_SLOPE_TILE
   - TALL_ROWS and WIDE_ROWS, the rows of a block of a matrix product that is two or three vectors wide */

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>

#include "job.h"

#if !defined(TARGET) || defined(__x86_64__)

/* SIRGCN_LOWER_VECTORS is for tests: the compiler emulates wide vectors on any machine. */
#if defined(TARGET) && !defined(SIRGCN_LOWER_VECTORS)
#define PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define FOR_TARGET(target_) PRAGMA(clang attribute push(__attribute__((target(target_))), apply_to = function))
#else
#define FOR_TARGET(target_) PRAGMA(GCC target(target_))
#endif
FOR_TARGET(TARGET)
#endif

#include "gated.h"
#include "network.h"
#include "product.h"
#include "softmax.h"

/* max(a, z) and min(a, z), with NaN where z is NaN: in that case the instructions return their second operand. */
#if defined(__AVX512F__) && BYTES == 64
#define STREAM_F32(p, v) _mm512_stream_ps(p, (__m512)(v))
#define STREAM_F64(p, v) _mm512_stream_pd(p, (__m512d)(v))
#define FENCE(job) do { if ((job)->streams) _mm_sfence(); } while (0)
#define MAX_F32(a, z) ((V)_mm512_max_ps((__m512)(a), (__m512)(z)))
#define MAX_F64(a, z) ((V)_mm512_max_pd((__m512d)(a), (__m512d)(z)))
#define MIN_F32(a, z) ((V)_mm512_min_ps((__m512)(a), (__m512)(z)))
#elif defined(__AVX2__) && BYTES == 32
#define STREAM_F32(p, v) _mm256_stream_ps(p, (__m256)(v))
#define STREAM_F64(p, v) _mm256_stream_pd(p, (__m256d)(v))
#define FENCE(job) do { if ((job)->streams) _mm_sfence(); } while (0)
#define MAX_F32(a, z) ((V)_mm256_max_ps((__m256)(a), (__m256)(z)))
#define MAX_F64(a, z) ((V)_mm256_max_pd((__m256d)(a), (__m256d)(z)))
#define MIN_F32(a, z) ((V)_mm256_min_ps((__m256)(a), (__m256)(z)))
#elif defined(__SSE2__) && BYTES == 16
#define STREAM_F32(p, v) _mm_stream_ps(p, (__m128)(v))
#define STREAM_F64(p, v) _mm_stream_pd(p, (__m128d)(v))
#define FENCE(job) do { if ((job)->streams) _mm_sfence(); } while (0)
#define MAX_F32(a, z) ((V)_mm_max_ps((__m128)(a), (__m128)(z)))
#define MAX_F64(a, z) ((V)_mm_max_pd((__m128d)(a), (__m128d)(z)))
#define MIN_F32(a, z) ((V)_mm_min_ps((__m128)(a), (__m128)(z)))
#else
#define STREAM_F32(p, v) NAME(store_real)(p, v)
#define STREAM_F64(p, v) STREAM_F32(p, v)
#define FENCE(job) (void)0
#define MAX_F32(a, z) NAME(pick)((M)((z) <= (a)), a, z)
#define MAX_F64(a, z) MAX_F32(a, z)
#define MIN_F32(a, z) NAME(pick)((M)((z) >= (a)), a, z)
#endif

#define LANES (BYTES / 4 ? BYTES / 4 : 1)
#define MAX MAX_F32
#define STREAM STREAM_F32
#define REAL float
#define MASK int32_t
#define REAL_IS_FLOAT 1

#define NAME(x) ISA(f32_##x)
#define STORED float
#define STORED_IS_BFLOAT16 0
#define MAX_TILE WIDE_TILE
#define MAX_SLOPE_TILE WIDE_SLOPE_TILE
#include "kernels.h"
#include "gated_kernels.h"
#include "product_kernels.h"
#include "network_kernels.h"
#include "softmax_kernels.h"
#undef NAME
#undef STORED
#undef STORED_IS_BFLOAT16
#undef MAX_TILE
#undef MAX_SLOPE_TILE

#define NAME(x) ISA(bf16_##x)
#define STORED uint16_t
#define STORED_IS_BFLOAT16 1
#define MAX_TILE 2
#define MAX_SLOPE_TILE 2
#include "kernels.h"
#undef NAME
#undef STORED
#undef STORED_IS_BFLOAT16
#undef MAX_TILE
#undef MAX_SLOPE_TILE
#undef LANES
#undef REAL
#undef MASK
#undef REAL_IS_FLOAT

#undef MAX
#define MAX MAX_F64
#undef STREAM
#define STREAM STREAM_F64
#define LANES (BYTES / 8 ? BYTES / 8 : 1)
#define REAL double
#define MASK int64_t
#define REAL_IS_FLOAT 0
#define NAME(x) ISA(f64_##x)
#define STORED double
#define STORED_IS_BFLOAT16 0
#define MAX_TILE 2
#define MAX_SLOPE_TILE 2
#include "kernels.h"
#include "gated_kernels.h"
#include "product_kernels.h"
#include "network_kernels.h"
#include "softmax_kernels.h"
#undef NAME
#undef STORED
#undef STORED_IS_BFLOAT16
#undef MAX_TILE
#undef MAX_SLOPE_TILE
#undef LANES
#undef REAL
#undef MASK
#undef REAL_IS_FLOAT

const Kernel *const ISA(kernels)[NUM_DTYPES][2] = {
    [FLOAT32] = {ISA(f32_table)[0], ISA(f32_table)[1]},
    [FLOAT64] = {ISA(f64_table)[0], ISA(f64_table)[1]},
    [BFLOAT16] = {ISA(bf16_table)[0], ISA(bf16_table)[1]},
};

const NetworkKernels *const ISA(network)[2] = {[FLOAT32] = &ISA(f32_network), [FLOAT64] = &ISA(f64_network)};

const ProductKernels *const ISA(product)[2] = {[FLOAT32] = &ISA(f32_product), [FLOAT64] = &ISA(f64_product)};

const GatedKernels *const ISA(gated)[2] = {[FLOAT32] = &ISA(f32_gated), [FLOAT64] = &ISA(f64_gated)};

const SoftmaxKernel ISA(softmax)[2] = {[FLOAT32] = ISA(f32_softmax), [FLOAT64] = ISA(f64_softmax)};

#if defined(__clang__) && defined(TARGET) && !defined(SIRGCN_LOWER_VECTORS)
#pragma clang attribute pop
#endif
#endif
