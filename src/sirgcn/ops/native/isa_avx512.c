/* AVX-512. */
#define ISA(x) avx512_##x
#define TARGET "avx512f,avx512bw,avx512dq,avx512vl,fma"
#define BYTES 64
#define WIDE_TILE 8
#define WIDE_SLOPE_TILE 8
#define TALL_ROWS 12
#define WIDE_ROWS 8
#include "isa.h"
