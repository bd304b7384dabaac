/* Messages with a value: how the work is divided into items, by edges and, of large graphs, by channels. */
#include "gated.h"

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "aggregate.h"
#include "isas.h"
#include "memory.h"
#include "threads.h"

typedef struct {
    Gated *g;
    GatedKernel kernel;
} Passing;

static void run_item(void *context, int64_t item, int worker) {
    (void)worker;
    Passing *p = context;
    p->kernel(p->g, item);
}

/* Rows of this size together leave the second-level cache: then an edge reads one tile of them at a time. */
#define BEYOND_CACHE (1 << 20)

static const GatedKernels *kernels_for(int dtype, int real, int64_t width) {
    int place = 0;
    while (isa_at(place)->bytes > width * real) place++;
    return isa_at(place)->gated[dtype];
}

/* Whether each tile of channels has items of its own. Tiles that overlap, and sums over channels, need one item for all. */
static int is_tiled(const Gated *g, const GatedKernels *kernels, int real) {
    const Job *job = &g->job;
    return g->others * job->width * real > BEYOND_CACHE && job->width % kernels->lanes == 0 && !job->term && !job->grad_weight;
}

static void *large(Memory *memory, int64_t bytes) {
    void *piece = take(memory, bytes);
#if defined(__linux__)
    /* Rows that are read at random lie on few pages. */
    const int64_t page = 1 << 21;
    const uintptr_t from = ((uintptr_t)piece + page - 1) & ~(uintptr_t)(page - 1), to = ((uintptr_t)piece + bytes) & ~(uintptr_t)(page - 1);
    if (piece && from < to) madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
    return piece;
}

int run_gated(Gated *g, int dtype, int backward, int threads) {
    Job *job = &g->job;
    const int real = dtype == FLOAT64 ? 8 : 4;
    const GatedKernels *kernels = kernels_for(dtype, real, job->width);
    const int with_table = backward && job->grad_term && job->edge_type, gate = g->sigma == SIGMOID ? SIGMOID_GATE : ANY_GATE;
    Memory memory = {0};
    if (begin_items(job, with_table, 2 * gated_sums(g, backward), real)) return -1;
    if (job->num_items == 0 && !(backward && job->width)) return 0;
    job->streams = 0;
    const int64_t columns = rounded_up(job->width, kernels->lanes) * (backward && g->normalized ? 3 : 2);
    g->met = large(&memory, g->others * columns * real);
    if (!g->met) {
        end_items(job, 0, real, threads);
        return -1;
    }
    run(run_item, &(Passing){g, kernels->meet}, (g->others + MEETING - 1) / MEETING, threads);
    const int64_t tiles = gated_tiles(g, kernels->lanes, kernels->tile);
    g->ranges = is_tiled(g, kernels, real) ? job->num_items : 0;
    run(run_item, &(Passing){g, kernels->pass[backward][gate]}, g->ranges ? tiles * g->ranges : job->num_items, threads);
    run(run_item, &(Passing){g, kernels->join[backward]}, job->num_items, threads);
    end_items(job, with_table, real, threads);
    give_back(&memory);
    return 0;
}
