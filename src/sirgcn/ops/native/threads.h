/* Tasks on the threads of torch. */
#ifndef SIRGCN_THREADS_H
#define SIRGCN_THREADS_H

#include <stdint.h>

/* `worker` is a number below `threads` that no other task has at the same time. */
typedef void (*Task)(void *context, int64_t index, int worker);

/* Every index once, by whichever thread is free; what a task computes must not depend on which. */
__attribute__((visibility("hidden"))) void run(Task task, void *context, int64_t count, int threads);

/* Whether an OpenMP runtime was found. */
__attribute__((visibility("hidden"))) int has_threads(void);

/* Called once, in the process that may have threads. */
__attribute__((visibility("hidden"))) void start_threads(void);

#endif
