/* The threads are those of the OpenMP runtime that torch has loaded. It is looked up when threads are first needed. */
#define _GNU_SOURCE
#include "threads.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

typedef void (*GompParallel)(void (*)(void *), void *, unsigned, unsigned);
typedef struct {
    Task task;
    void *context;
    int64_t count;
    atomic_llong next;
    atomic_int workers;
} Work;

static void take_work(void *argument) {
    Work *work = argument;
    const int worker = atomic_fetch_add(&work->workers, 1);
    for (;;) {
        int64_t i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count) return;
        work->task(work->context, i, worker);
    }
}

static GompParallel gomp_parallel(void) {
    static GompParallel found;
    if (!found) *(void **)&found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    return found;
}

/* The process that loaded this module. A forked process has the records of the OpenMP threads but not the threads, so that it would
   wait for them for ever. */
static pid_t home;

void run(Task task, void *context, int64_t count, int threads) {
    Work work = {task, context, count, 0, 0};
    GompParallel parallel = threads > 1 && count > 1 && getpid() == home ? gomp_parallel() : 0;
    if (parallel)
        parallel(take_work, &work, count < threads ? (unsigned)count : (unsigned)threads, 0);
    else
        take_work(&work);
}

int has_threads(void) { return gomp_parallel() != 0; }

void start_threads(void) { home = getpid(); }
