/* One pass of the aggregation over the grouped edges. */
#ifndef SIRGCN_AGGREGATE_H
#define SIRGCN_AGGREGATE_H

#include "job.h"

/* Returns 0, or -1 if memory is short. */
__attribute__((visibility("hidden"))) int run_aggregate(Job *job, int dtype, int backward, int activation, int threads);

#endif
