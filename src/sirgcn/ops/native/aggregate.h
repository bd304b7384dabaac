/* One pass of the aggregation over the grouped edges. */
#ifndef SIRGCN_AGGREGATE_H
#define SIRGCN_AGGREGATE_H

#include "job.h"

/* Returns 0, or -1 if memory is short. */
__attribute__((visibility("hidden"))) int run_aggregate(Job *job, int dtype, int backward, int activation, int threads);

/* The edges and groups of a job divided into items, with memory for `rows` partial rows of each item and, with a table, for its part
   of the table's gradient. There are no items where there is nothing to do. Returns 0, or -1 if memory is short. */
__attribute__((visibility("hidden"))) int begin_items(Job *job, int with_table, int rows, int real);

/* Sums the parts of a table's gradient, and frees the memory of the items. */
__attribute__((visibility("hidden"))) void end_items(Job *job, int with_table, int real, int threads);

#endif
