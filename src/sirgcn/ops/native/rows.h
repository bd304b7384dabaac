/* Rows of a tile of edges: sums of the rows of both ends, maxima over neighbours, and sums into rows. */
#ifndef SIRGCN_ROWS_H
#define SIRGCN_ROWS_H

#include <stdint.h>

typedef struct {
    int dtype, wide; /* float32 or float64; int64 indices */
    int64_t rows, width, block;
    const void *source, *index;
    int64_t source_stride;
    void *out;
    int64_t out_stride;
    int64_t *winner;
    int64_t start;
} Columns;

typedef struct {
    int dtype, wide, wide_row;
    int64_t rows, width;
    const void *query, *key, *term;
    int64_t query_stride, key_stride, term_stride;
    const void *target, *source, *row;
    void *out;
} Gather;

/* out[index[i]] += source[i] */
__attribute__((visibility("hidden"))) void add_rows(Columns *t, int threads);

/* out[index[i]] = max(out[index[i]], source[i]), and winner = start + i where source[i] is the new maximum. -1 stands for no winner. */
__attribute__((visibility("hidden"))) void max_rows(Columns *t, int threads);

/* out[i] = source[index[i]] where the winner is start + i, otherwise 0. */
__attribute__((visibility("hidden"))) void won_rows(Columns *t, int threads);

/* out[i] = query[target[i]] + key[source[i]] (+ term[row[i]]) */
__attribute__((visibility("hidden"))) void gather_rows(const Gather *t, int threads);

#endif
