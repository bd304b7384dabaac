/* Tasks on the threads of torch. */
#ifndef SIRGCN_THREADS_H
#define SIRGCN_THREADS_H

#include <stdint.h>

/* `worker` is a number below `threads`. Two tasks that run at the same time have different workers. */
typedef void (*Task)(void *context, int64_t index, int worker);

/* Run a task for every index once, on any free thread. The result of a task must not depend on the thread. */
__attribute__((visibility("hidden"))) void run(Task task, void *context, int64_t count, int threads);

/* Whether an OpenMP runtime was found. */
__attribute__((visibility("hidden"))) int has_threads(void);

/* Must be called once, in the process that may have threads. */
__attribute__((visibility("hidden"))) void start_threads(void);

#endif
