/* c = a b (+ bias), a matrix product with few columns: c [m, n] in one piece, a [m, depth] and b [depth, n] with any strides. */
#ifndef SIRGCN_PRODUCT_H
#define SIRGCN_PRODUCT_H

#include <stdint.h>

typedef struct {
    int64_t m, n, depth;
    const void *a, *b, *bias; /* bias [n], or null */
    int64_t a_row, a_step, b_row, b_step; /* entry (i, k) of a at i * a_row + k * a_step, (k, j) of b at k * b_row + j * b_step */
    void *c;

    /* Below: what the driver makes of it. */
    void *packed;                  /* b, for blocks of rows */
    int64_t num_slots, slot_depth; /* for a long sum: ranges of the depth, each with a c of its own, the first with c itself */
    void *slots;
} Product;

typedef struct {
    int lanes;
    void (*pack)(const Product *p);
    void (*rows)(const Product *p, int64_t block);
    void (*slot)(const Product *p, int64_t slot, int64_t block, void *packed);
    void (*sum)(const Product *p);
} ProductKernels;

/* What a block holds: a panel of b stays in the first cache, the rows of a beside it in the second; in a slot, whose a may have
   rows a power of two apart, a is read down its columns and shorter. */
#define PRODUCT_DEPTH 256
#define PRODUCT_SLOT_DEPTH 128
#define PRODUCT_ROWS 120 /* a multiple of every kernel's: 4, 6, 8 and 12 */
#define PRODUCT_COLUMNS 256

/* A width in whole vectors, at least two. */
static inline int64_t padded_width(int64_t width, int64_t lanes) {
    const int64_t vecs = (width + lanes - 1) / lanes;
    return (vecs < 2 ? 2 : vecs) * lanes;
}

/* 0, or -1 where there is no memory. */
__attribute__((visibility("hidden"))) int run_product(Product *p, const ProductKernels *kernels, int real, int threads);

#endif
