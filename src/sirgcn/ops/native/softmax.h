/* The softmax of edges over every neighbourhood. */
#ifndef SIRGCN_SOFTMAX_H
#define SIRGCN_SOFTMAX_H

#include <stdint.h>

/* Scores, results and their gradient are [edges, heads] with any strides. Entry (e, h) is at e * step + h * head. */
typedef struct {
    const void *ptr, *edge; /* the edges, grouped by target, and their places in the input */
    int wide;               /* int64 indices, else int32 */
    int64_t groups, heads;
    const void *given; /* the scores; backward: the results */
    int64_t given_step, given_head;
    const void *grad; /* of the results; null: forward */
    int64_t grad_step, grad_head;
    void *out; /* the results; backward: the gradient of the scores */
    int64_t out_step, out_head;
} Softmax;

/* A block of groups. */
typedef void (*SoftmaxKernel)(const Softmax *s, int64_t block);

#define SOFTMAX_GROUPS 64

#endif
