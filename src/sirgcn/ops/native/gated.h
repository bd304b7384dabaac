/* Messages with a value: sigma(z) * value, summed over the edges, and the gradients of these sums. */
#ifndef SIRGCN_GATED_H
#define SIRGCN_GATED_H

#include "job.h"

typedef struct {
    /* forward: self = query, other = key. backward: self = key, other = query, out = the gradient of the key. */
    Job job;
    int64_t others; /* the rows of `other` */
    const void *value; /* one row per source */
    int64_t value_stride;
    int sigma, normalized; /* the sums are divided by the sums of the gates */
    /* forward: what the output begins with */
    const void *start;
    int64_t start_stride;
    /* Of normalised sums, contiguous: the output without its start, and 1 / (the sum of gates + epsilon). The forward pass
       leaves them with the slopes; the backward pass reads them. */
    void *mean, *share;
    double epsilon;
    /* backward */
    void *grad_value;
    int64_t grad_value_stride;
    /* The gradients of the query and of the start, on the way to the edges: slopes * grad (the slopes are those of the job), and a
       copy of grad. Null where nobody wants them. */
    void *grad_query, *grad_start;
    int64_t grad_query_stride, grad_start_stride;
    /* What an edge reads of its far end, row by row of a tile. Forward: key and value. Backward: query, gradient and, of
       normalised sums, the gradient of their divisor. */
    void *met;
    int64_t ranges; /* items of a tile where each tile of channels has items of its own, else 0 */
} Gated;

typedef void (*GatedKernel)(const Gated *g, int64_t item);

enum { SIGMOID_GATE, ANY_GATE, NUM_GATES };

typedef struct {
    int lanes, tile;                        /* the elements of a vector, the vectors of a tile */
    GatedKernel pass[2][NUM_GATES], join[2]; /* forward, backward */
    GatedKernel meet;
} GatedKernels;

/* Rows of one item of `meet`. */
#define MEETING 256

/* The tiles of a row have nearly equal numbers of vectors. Tile i begins at this vector. */
static inline int64_t gated_tiles(const Gated *g, int lanes, int tile) {
    const int64_t vectors = (g->job.width + lanes - 1) / lanes;
    return (vectors + tile - 1) / tile;
}
static inline int64_t gated_tile_at(const Gated *g, int lanes, int64_t tiles, int64_t i) {
    return i * ((g->job.width + lanes - 1) / lanes) / tiles;
}

/* The sums of the forward pass that an item keeps of a group: values, their slopes, gates, their slopes. */
static inline int gated_sums(const Gated *g, int backward) {
    if (backward) return 2;
    return (g->job.slope_sum ? 2 : 1) * (g->normalized ? 2 : 1);
}

/* Returns 0, or -1 if memory is short. */
__attribute__((visibility("hidden"))) int run_gated(Gated *g, int dtype, int backward, int threads);

#endif
