/* Neighbours drawn at random, and the numbers of the nodes that were found. */
#ifndef SIRGCN_SAMPLE_H
#define SIRGCN_SAMPLE_H

#include <stdint.h>

/* One hop along one type of edges. A key is the number of a node or, where every root grows a tree of its own, the number of its
   tree times the number of nodes plus the number of the node. */
typedef struct {
    /* The edges, grouped by target. A null `edge` means that an edge is numbered by its place in the groups. */
    const void *ptr, *node, *edge;
    int wide_ptr, wide;       /* int64 indices, else int32; `wide` is for node and edge */
    int64_t sources, targets; /* how many nodes there are */
    const int64_t *frontier;  /* [count], the keys of the targets */
    int64_t count;
    const int64_t *root; /* [trees], the node at the root of each tree; null where there are no trees */
    int64_t fanout;      /* how many neighbours are drawn, negative for all */
    int replace;         /* draw with replacement */
    int64_t seed;
    int64_t *offset; /* [count + 1], where the neighbours of each target begin */
    /* [offset[count]]: the key of the neighbour, the place of its target in the frontier, the number of the edge. */
    int64_t *found, *owner, *place;
    int failed; /* 1: memory was short. 2: a neighbour is not the number of a node. */
} Hop;

__attribute__((visibility("hidden"))) void count_drawn(Hop *hop, int threads);
__attribute__((visibility("hidden"))) void draw(Hop *hop, int threads);

/* Keys get numbers in the order in which they are first seen. */
typedef struct {
    uint32_t *table; /* [slots], the number of a key plus one, or 0; `slots` is a power of two of at most 2^32 */
    int64_t slots;
    int64_t *key; /* the key of every number; there is room for `known + count` */
    int64_t known;
    const int64_t *found;
    int64_t count;
    int64_t *number; /* [count] */
    /* 0: look up, and -1 stands for an unknown key. 1: an unknown key gets the next number. 2: every entry gets the next number,
       and a key that repeats stands for its first one. */
    int mode;
} Numbering;

/* Returns how many entries were numbered. The table must be larger before the others can follow. */
__attribute__((visibility("hidden"))) int64_t run_numbering(Numbering *numbering);

#endif
