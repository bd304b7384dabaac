/* The instruction sets that this machine has, the widest first, and the kernels of each. */
#ifndef SIRGCN_ISAS_H
#define SIRGCN_ISAS_H

#include "job.h"
#include "network.h"
#include "softmax.h"

typedef const Kernel *const (*KernelTable)[2];
typedef struct {
    const char *name;
    int bytes; /* of a vector */
    KernelTable kernels;
    /* Of float32 and float64. */
    const NetworkKernels *const *network;
    const SoftmaxKernel *softmax;
} Isa;

__attribute__((visibility("hidden"))) void find_isas(void);

/* Those in use, from the widest on; null past the last one. */
__attribute__((visibility("hidden"))) const Isa *isa_at(int place);

/* Use none wider than the one of this name; 0 if this machine lacks it. */
__attribute__((visibility("hidden"))) int limit_isa(const char *name);

/* The edge loop for rows of this width: rows narrower than a vector take the next instruction set. */
__attribute__((visibility("hidden"))) Kernel find_kernel(int dtype, int backward, int activation, int64_t width);

#endif
