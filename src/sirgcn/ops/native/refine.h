/* Colour refinement: kinds of nodes that differ by the kinds of their neighbours. */
#ifndef SIRGCN_REFINE_H
#define SIRGCN_REFINE_H

#include <stdint.h>

typedef struct {
    /* The edges, grouped by target. */
    const void *ptr, *node, *edge;
    int wide; /* int64 indices, else int32 */
    int64_t nodes;
    const int64_t *kind;      /* [nodes], at least 0 */
    const int64_t *edge_kind; /* [edges]; null if all edges are of one kind */
    int64_t edge_kinds;
    int64_t most; /* kinds that pay off */
    /* What is found: every node's new kind, and of every new kind its first node, how many there are, and the edges of the first,
       from an old kind to the new one, with their kind. */
    int64_t *finer;                       /* [nodes] */
    int64_t *first, *count;               /* [most] */
    int64_t *source, *target, *edge_type; /* [edges] */
    int64_t num_kinds, num_edges;
} Refinement;

/* Returns 0; 1 if there are more kinds than `most`, and then the results are meaningless; -1 if memory is short. */
int refine(Refinement *r);

#endif
