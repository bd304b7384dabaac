/* A matrix product: how it is cut into tasks. The cut depends on the sizes, never on the threads, so that sums have the same bits
   on any number of them. */
#include "product.h"

#include "memory.h"
#include "threads.h"

/* Of the depth that is summed apart, and what all such sums together may take. */
#define SLOT_DEPTH (4 * PRODUCT_SLOT_DEPTH)
#define MOST_SLOTS 16
#define SLOT_BYTES (16 << 20)

typedef struct {
    const Product *p;
    const ProductKernels *kernels;
    char *scratch; /* of every worker */
    int64_t scratch_bytes, blocks;
} Call;

static void rows_task(void *context, int64_t block, int worker) {
    const Call *call = context;
    (void)worker;
    call->kernels->rows(call->p, block);
}

static void slot_task(void *context, int64_t task, int worker) {
    const Call *call = context;
    call->kernels->slot(call->p, task / call->blocks, task % call->blocks, call->scratch + worker * call->scratch_bytes);
}

int run_product(Product *p, const ProductKernels *kernels, int real, int threads) {
    Call call = {.p = p, .kernels = kernels};
    Memory memory = {0};
    if (p->m == 0 || p->n == 0) return 0;
    if (p->depth == 0 && !p->bias) memset(p->c, 0, p->m * p->n * real);
    if (p->depth <= p->m) {
        p->packed = take(&memory, p->depth * padded_width(p->n, kernels->lanes) * real);
        if (!memory.failed) {
            kernels->pack(p);
            run(rows_task, &call, (p->m + PRODUCT_ROWS - 1) / PRODUCT_ROWS, threads);
        }
    } else {
        const int64_t most_slots = most(1, least(MOST_SLOTS, SLOT_BYTES / (p->m * p->n * real)));
        const int64_t wanted = least(most_slots, (p->depth + SLOT_DEPTH - 1) / SLOT_DEPTH);
        p->slot_depth = rounded_up((p->depth + wanted - 1) / wanted, PRODUCT_SLOT_DEPTH);
        p->num_slots = (p->depth + p->slot_depth - 1) / p->slot_depth;
        call.blocks = (p->n + PRODUCT_COLUMNS - 1) / PRODUCT_COLUMNS;
        call.scratch_bytes = PRODUCT_SLOT_DEPTH * padded_width(least(p->n, PRODUCT_COLUMNS), kernels->lanes) * real;
        call.scratch = take(&memory, threads * call.scratch_bytes);
        p->slots = take(&memory, (p->num_slots - 1) * p->m * p->n * real);
        if (!memory.failed) {
            run(slot_task, &call, p->num_slots * call.blocks, threads);
            kernels->sum(p);
        }
    }
    give_back(&memory);
    return memory.failed ? -1 : 0;
}
