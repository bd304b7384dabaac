#include "isas.h"

#include <string.h>

#define DECLARE(isa)                                  \
    extern const Kernel *const isa##_kernels[NUM_DTYPES][2]; \
    extern const NetworkKernels *const isa##_network[2];     \
    extern const ProductKernels *const isa##_product[2];     \
    extern const SoftmaxKernel isa##_softmax[2];              \
    extern const GatedKernels *const isa##_gated[2];
#define ISA_OF(isa, bytes) ((Isa){#isa, bytes, isa##_kernels, isa##_network, isa##_product, isa##_softmax, isa##_gated})

DECLARE(scalar)
DECLARE(baseline)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
#endif

static Isa isas[4];
static int num_isas, first_isa;

void find_isas(void) {
    num_isas = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
#ifdef SIRGCN_LOWER_VECTORS
    const int avx512 = 1, avx2 = 1;
#else
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    if (avx512) isas[num_isas++] = ISA_OF(avx512, 64);
    if (avx2) isas[num_isas++] = ISA_OF(avx2, 32);
#endif
    isas[num_isas++] = ISA_OF(baseline, 16);
    isas[num_isas++] = ISA_OF(scalar, 0);
}

Kernel find_kernel(int dtype, int backward, int activation, int64_t width) {
    const int real = dtype == FLOAT64 ? 8 : 4;
    int i = first_isa;
    while (isas[i].bytes > width * real) i++;
    return isas[i].kernels[dtype][backward][activation];
}

const Isa *isa_at(int place) { return first_isa + place < num_isas ? &isas[first_isa + place] : 0; }

int limit_isa(const char *name) {
    for (int i = 0; i < num_isas; i++)
        if (!strcmp(isas[i].name, name)) {
            first_isa = i;
            return 1;
        }
    return 0;
}
