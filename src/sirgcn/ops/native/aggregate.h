/* One pass of the aggregation over the grouped edges. */
#ifndef SIRGCN_AGGREGATE_H
#define SIRGCN_AGGREGATE_H

#include "job.h"

/* 0, or -1 where there is no memory. */
__attribute__((visibility("hidden"))) int run_aggregate(Job *job, int dtype, int backward, int activation, int threads);

#endif
