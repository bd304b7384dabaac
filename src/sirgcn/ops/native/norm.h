/* Batch norm of rows that stand for different numbers of equal rows. */
#ifndef SIRGCN_NORM_H
#define SIRGCN_NORM_H

#include <stdint.h>

/* All arrays are float32, or all are float64. Matrices are contiguous. `share` [rows] sums to 1. The other vectors are [width]. */
typedef struct {
    int64_t rows, width;
    const void *table, *share, *weight, *bias;
    double eps;
    void *mean, *variance, *scale; /* scale: 1 / sqrt(variance + eps); backward reads it and mean */
    const void *grad;              /* of out, [rows, width]; null: forward */
    void *grad_weight, *grad_bias;
    void *out; /* [rows, width]; backward: the gradient of the table */
} Norm;

void run_norm(const Norm *n, int is_double, int threads);

#endif
