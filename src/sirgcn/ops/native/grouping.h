/* Edges grouped by target and by source. */
#ifndef SIRGCN_GROUPING_H
#define SIRGCN_GROUPING_H

#include <stdint.h>

/* Sides: 0 by target, 1 by source. */
typedef struct {
    const void *ends[2]; /* targets, sources */
    int wide_in, wide_out;
    int64_t edges, sizes[2];
    void *ptr[2], *node[2], *edge[2];
    int64_t bad[2]; /* the first entry out of range, or -1 */
    int failed; /* memory was short */
} Grouping;

__attribute__((visibility("hidden"))) void run_grouping(Grouping *g, int threads);

/* Only the groups of the targets; `edge[0]` may be null. */
__attribute__((visibility("hidden"))) void group_targets(Grouping *g);

#endif
