/* AVX2 and FMA. */
#define ISA(x) avx2_##x
#define TARGET "avx2,fma"
#define BYTES 32
#define WIDE_TILE 10
#define WIDE_SLOPE_TILE 6
#define TALL_ROWS 6
#define WIDE_ROWS 4
#include "isa.h"
