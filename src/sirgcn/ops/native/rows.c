#include "rows.h"

#include "job.h"
#include "threads.h"

#define ADD_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        REAL *to = (REAL *)t->out + index_at(t->index, t->wide, i) * t->out_stride;                                     \
        const REAL *from = (const REAL *)t->source + i * t->source_stride;                                              \
        for (int64_t c = c0; c < c1; c++) to[c] += from[c];                                                             \
    }

static void add_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        ADD_ROWS(double)
    } else {
        ADD_ROWS(float)
    }
}

/* The first of equal maxima wins; NaN is larger than any number, and the first NaN wins. */
#define MAX_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        int64_t row = index_at(t->index, t->wide, i) * t->out_stride;                                                   \
        REAL *top = (REAL *)t->out + row;                                                                               \
        int64_t *winner = t->winner + row;                                                                              \
        const REAL *from = (const REAL *)t->source + i * t->source_stride;                                              \
        for (int64_t c = c0; c < c1; c++) {                                                                             \
            const REAL x = from[c], y = top[c];                                                                         \
            const int better = (winner[c] < 0) | (x > y) | ((x != x) & (y == y));                                       \
            top[c] = better ? x : y;                                                                                    \
            winner[c] = better ? t->start + i : winner[c];                                                              \
        }                                                                                                               \
    }

static void max_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        MAX_ROWS(double)
    } else {
        MAX_ROWS(float)
    }
}

#define WON_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        int64_t row = index_at(t->index, t->wide, i);                                                                   \
        const REAL *from = (const REAL *)t->source + row * t->source_stride;                                            \
        const int64_t *winner = t->winner + row * t->width, place = t->start + i;                                       \
        REAL *to = (REAL *)t->out + i * t->out_stride;                                                                  \
        for (int64_t c = c0; c < c1; c++) to[c] = winner[c] == place ? from[c] : 0;                                     \
    }

/* The gradient of the maximum goes to the row that holds it. */
static void won_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        WON_ROWS(double)
    } else {
        WON_ROWS(float)
    }
}

/* A task is a block of columns, in whole cache lines of 16 floats, so that no two tasks write to the same place. */
static void by_columns(Task task, Columns *t, int threads) {
    t->block = ((t->width + threads - 1) / threads + 15) / 16 * 16;
    run(task, t, t->block ? (t->width + t->block - 1) / t->block : 0, threads);
}

void add_rows(Columns *t, int threads) { by_columns(add_rows_block, t, threads); }
void max_rows(Columns *t, int threads) { by_columns(max_rows_block, t, threads); }
void won_rows(Columns *t, int threads) { by_columns(won_rows_block, t, threads); }

/* A task is a block of rows. */
#define GATHER_BLOCK 64

#define GATHER_ROWS(REAL)                                                                                               \
    for (int64_t i = i0; i < i1; i++) {                                                                                 \
        const REAL *q = (const REAL *)t->query + index_at(t->target, t->wide, i) * t->query_stride;                     \
        const REAL *k = (const REAL *)t->key + index_at(t->source, t->wide, i) * t->key_stride;                         \
        REAL *to = (REAL *)t->out + i * t->width;                                                                       \
        if (t->term) {                                                                                                  \
            const REAL *e = (const REAL *)t->term + index_at(t->row, t->wide_row, i) * t->term_stride;                  \
            for (int64_t c = 0; c < t->width; c++) to[c] = q[c] + k[c] + e[c];                                          \
        } else {                                                                                                        \
            for (int64_t c = 0; c < t->width; c++) to[c] = q[c] + k[c];                                                 \
        }                                                                                                               \
    }

static void gather_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Gather *t = context;
    int64_t i0 = block * GATHER_BLOCK, i1 = i0 + GATHER_BLOCK < t->rows ? i0 + GATHER_BLOCK : t->rows;
    if (t->dtype == FLOAT64) {
        GATHER_ROWS(double)
    } else {
        GATHER_ROWS(float)
    }
}

void gather_rows(const Gather *t, int threads) {
    run(gather_block, (void *)t, (t->rows + GATHER_BLOCK - 1) / GATHER_BLOCK, threads);
}
