/* The instruction sets that this machine has, the widest first, and the kernels of each. */
#ifndef SIRGCN_ISAS_H
#define SIRGCN_ISAS_H

#include "gated.h"
#include "job.h"
#include "network.h"
#include "product.h"
#include "softmax.h"

typedef const Kernel *const (*KernelTable)[2];
typedef struct {
    const char *name;
    int bytes; /* of a vector */
    KernelTable kernels;
    /* The tables below have an entry for float32 and one for float64. */
    const NetworkKernels *const *network;
    const ProductKernels *const *product;
    const SoftmaxKernel *softmax;
    const GatedKernels *const *gated;
} Isa;

__attribute__((visibility("hidden"))) void find_isas(void);

/* The instruction sets in use, the widest first; null after the last one. */
__attribute__((visibility("hidden"))) const Isa *isa_at(int place);

/* Use no instruction set wider than the one of this name. Returns 0 if this machine lacks it. */
__attribute__((visibility("hidden"))) int limit_isa(const char *name);

/* The edge loop for rows of this width. For rows narrower than a vector it comes from the next instruction set. */
__attribute__((visibility("hidden"))) Kernel find_kernel(int dtype, int backward, int activation, int64_t width);

#endif
