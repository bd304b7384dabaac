/* Scalar code, for rows narrower than a vector. */
#define ISA(x) scalar_##x
#define BYTES 4
#define WIDE_TILE 1
#define WIDE_SLOPE_TILE 1
#define TALL_ROWS 6
#define WIDE_ROWS 4
#include "isa.h"
