#include "grouping.h"

#include <stdlib.h>

#include "job.h"
#include "threads.h"

static inline void put(void *p, int wide, int64_t i, int64_t value) {
    if (wide)
        ((int64_t *)p)[i] = value;
    else
        ((int32_t *)p)[i] = (int32_t)value;
}

/* A counting sort by one end, which keeps the order of the input within a group. */
static void group_by(void *context, int64_t side, int worker) {
    (void)worker;
    Grouping *g = context;
    const int64_t size = g->sizes[side];
    const void *by = g->ends[side], *other = g->ends[1 - side];
    g->bad[side] = -1;
    int64_t *next = calloc(size + 1, sizeof(int64_t));
    if (!next) {
        g->failed = 1;
        return;
    }
    for (int64_t i = 0; i < g->edges; i++) {
        int64_t group = index_at(by, g->wide_in, i);
        if (group < 0 || group >= size) {
            g->bad[side] = i;
            free(next);
            return;
        }
        next[group]++;
    }
    int64_t begin = 0;
    for (int64_t group = 0; group <= size; group++) {
        int64_t count = next[group];
        next[group] = begin;
        put(g->ptr[side], g->wide_out, group, begin);
        begin += count;
    }
    for (int64_t i = 0; i < g->edges; i++) {
        int64_t place = next[index_at(by, g->wide_in, i)]++;
        put(g->node[side], g->wide_out, place, index_at(other, g->wide_in, i));
        if (g->edge[side]) put(g->edge[side], g->wide_out, place, i);
    }
    free(next);
}

/* With fewer edges, waking a thread takes longer than sorting them. */
#define FEW_EDGES 8192

void run_grouping(Grouping *g, int threads) { run(group_by, g, 2, g->edges > FEW_EDGES ? threads : 1); }

void group_targets(Grouping *g) {
    g->bad[1] = -1;
    for (int64_t i = 0; i < g->edges && g->bad[1] < 0; i++) {
        const int64_t source = index_at(g->ends[1], g->wide_in, i);
        if (source < 0 || source >= g->sizes[1]) g->bad[1] = i;
    }
    group_by(g, 0, 0);
}
