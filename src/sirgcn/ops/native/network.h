/* What one call of the message network act2(W act1(q_u + k_v + e) + b) reads and writes, and how its work is divided.

   Edges are in the order of their targets and are processed in blocks of `rows`. The inner layer z of a block, its messages y and
   their gradients stay in the second cache of a core from the gather to the last use. Rows of these buffers are padded to whole
   vectors. A null pointer stands for an absent term or for a gradient that is not needed. */
#ifndef SIRGCN_NETWORK_H
#define SIRGCN_NETWORK_H

#include "job.h"

typedef struct {
    /* The edges grouped by target. */
    const void *ptr, *node, *edge;
    int wide_index;
    int64_t targets, edges;
    const void *query, *key;
    int64_t query_stride, key_stride;
    const void *term, *edge_type; /* [E, d_in], or the table [K, d_in] and the type of every edge */
    int wide_type;
    const void *weight, *bias; /* [d_out, d_in] and [d_out], contiguous */
    int64_t d_in, d_out;
    int first, second; /* the activations */
    double first_slope, second_slope;
    int is_max;
    const void *target_weight, *source_weight;
    /* [targets, d_out], zeroed by the caller; winner is int32 (float64: int64), a place within the target's group. */
    void *out, *winner;
    void *marks; /* of act2's sign, `marks_size` bytes: the forward pass leaves them to the backward pass */
    const void *grad; /* [targets, d_out] */
    int64_t grad_stride;
    void *grad_query, *grad_key, *grad_term, *grad_weight, *grad_bias; /* zeroed by the caller */

    /* The driver fills in the members below. */
    int64_t rows;                            /* edges of a block */
    int64_t in_width, out_width;             /* d_in and d_out in whole vectors, at least two */
    int64_t in_stride, out_stride;           /* elements between rows of z and y */
    void *packed, *packed_back, *plain;      /* W for z W^T, for dy W, and with padded rows for the winners */
    void *shift;                             /* the bias, padded, 0 without one */
    int64_t marked, mark_groups, mark_stride; /* the edges that have marks, a whole number of blocks; words of a block */
    int64_t mark_width;                       /* of these, those that stand for a channel, in whole vectors */
    /* forward: items of `item` edges. If an earlier item began a target, the item adds to a row of its own. */
    int64_t item, num_items;
    void *partial, *partial_winner;
    /* backward: a tile of `slots` blocks, each with its own gradient of W and b, summed in the end; the gradients of the
       tile's rows of q + k + e, which are added to the nodes when the whole tile is done. */
    int64_t slots, capacity;
    void *slot_weight, *slot_bias;
    int64_t slot_size; /* of one slot_weight */
    void *tile;
    int64_t *tile_target, *tile_source, *tile_type, *tile_count; /* [slots * capacity], the last one [slots] */
    int64_t *bounds; /* [slots + 1]: the edges of the tile's blocks, in the winners' form their targets */
    int64_t table_size; /* of the winners' hash table, a power of two */
} Network;

/* Buffers of one thread. */
typedef struct {
    void *pre, *z, *y, *row;
    int64_t *target;
    int32_t *table, *number, *place_of, *begin, *order; /* the channels of a target by the edge that won them */
} Scratch;

typedef struct {
    int lanes;
    void (*pack)(const Network *net);
    void (*forward)(const Network *net, int64_t item, const Scratch *scratch);
    void (*merge)(const Network *net);
    void (*backward)(const Network *net, int64_t slot, const Scratch *scratch);
    void (*winners)(const Network *net, int64_t slot, const Scratch *scratch);
    void (*scatter)(const Network *net, int64_t begin, int64_t end);
    void (*sum_slots)(const Network *net);
} NetworkKernels;

/* The target of an edge. */
static inline int64_t target_of(const Network *net, int64_t edge) {
    int64_t low = 0, high = net->targets - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (index_at(net->ptr, net->wide_index, middle) <= edge)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The bytes of marks that a pass can use, at most half of the bytes of the output; 0 if the slope of act2 is not given by a sign. */
__attribute__((visibility("hidden"))) int64_t marks_size(Network *net, const NetworkKernels *kernels, int real);

/* Returns 0, or -1 if memory is short. */
__attribute__((visibility("hidden"))) int run_network(Network *net, const NetworkKernels *kernels, int real, int backward, int threads);

#endif
