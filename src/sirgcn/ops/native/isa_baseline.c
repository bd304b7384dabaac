/* The instructions that every machine of the platform has. */
#define ISA(x) baseline_##x
#define BYTES 16
#define WIDE_TILE 8
#define WIDE_SLOPE_TILE 6
#define TALL_ROWS 6
#define WIDE_ROWS 4
#include "isa.h"
