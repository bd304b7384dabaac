/* Batch norm of rows that weigh differently. */
#ifndef SIRGCN_NORM_H
#define SIRGCN_NORM_H

#include <stdint.h>

/* All float32 or all float64. The rows lie one after the other; `share` [rows] sums to 1; what is not said to be else is [width]. */
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
