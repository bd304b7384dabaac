/* What one call of the aggregation reads and writes. Row strides are in elements. A null pointer stands for an absent term. */
#ifndef SIRGCN_JOB_H
#define SIRGCN_JOB_H

#include <stdint.h>

enum {
#define ACTIVATION(constant, name, ...) constant,
#include "activations.def"
#undef ACTIVATION
    NUM_ACTIVATIONS
};
/* Whether the slope of an activation is one of two numbers, by the sign of z. The kernels of such activations count signs. */
#define SLOPE_IS_SIGN(activation) \
    ((int)(activation) == IDENTITY || (int)(activation) == RELU || (int)(activation) == LEAKY_RELU)

enum { FLOAT32, FLOAT64, BFLOAT16, NUM_DTYPES };

typedef struct {
    /* The grouped edges. A group owns a row of `self`, and its edges lead to rows of `other`. */
    const void *ptr, *node, *edge;
    int wide_index; /* int64 indices, else int32 */
    int64_t groups, edges;
    /* forward: self = query, other = key; backward: self = key, other = query, and grad has the rows of query. */
    const void *self, *other, *grad;
    int64_t self_stride, other_stride, grad_stride;
    const void *term;      /* [E, d], or the table [K, d] */
    const void *edge_type; /* [E], with a table */
    int wide_type;
    int64_t types;
    /* Weights are float64 for float64 messages, otherwise float32. */
    const void *edge_weight, *self_weight, *other_weight;
    /* forward: out and, where it is wanted, the sum of derivatives, both of the accumulation type;
       backward: grad of key, of the edge term (rows as `term`), of the edge weights. */
    void *out, *slope_sum, *grad_term, *grad_weight;
    int64_t out_stride;
    double slope;
    int64_t width;
    /* Scheduling: an item has `item` units. An edge is one unit, and so is the start of a group. */
    int64_t item, num_items;
    void *partial; /* [num_items, d] or [num_items, 2, d]: the sums of an item for a group that an earlier item began */
    void *table_partial; /* [num_items, K, d]: the part of an item in the gradient of the table */
    int streams;         /* results are written past the cache; their rows are aligned */
} Job;

typedef void (*Kernel)(const Job *job, int64_t item);

static inline int64_t index_at(const void *p, int wide, int64_t i) {
    return wide ? ((const int64_t *)p)[i] : (int64_t)((const int32_t *)p)[i];
}

/* The group that holds a unit. Group g begins at unit ptr[g] + g. */
static inline int64_t group_of_unit(const Job *job, int64_t unit) {
    int64_t low = 0, high = job->groups - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (index_at(job->ptr, job->wide_index, middle) + middle <= unit)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The edges of one group that one item processes. */
typedef struct {
    int64_t item, group, first, stop;
    int begun; /* by an earlier item: the sums go to the item's partial row */
} Span;

/* The next span of an item. Before the first span, stop is negative and the group is set. */
static inline int next_span(const Job *job, Span *span) {
    const int64_t units = job->edges + job->groups;
    int64_t end = (span->item + 1) * job->item, unit = span->item * job->item;
    if (end > units) end = units;
    if (span->stop >= 0) {
        unit = span->stop + span->group + 1;
        span->group++;
    }
    if (unit >= end) return 0;
    const int64_t first = index_at(job->ptr, job->wide_index, span->group);
    const int64_t last = index_at(job->ptr, job->wide_index, span->group + 1);
    span->begun = unit > first + span->group;
    span->first = span->begun ? unit - span->group - 1 : first;
    span->stop = end - span->group - 1 < last ? end - span->group - 1 : last;
    return 1;
}

#endif
