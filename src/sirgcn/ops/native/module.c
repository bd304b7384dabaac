/* The Python module: arguments in, threads out. It knows nothing of torch: tensors come as addresses, sizes and strides, and
   one build serves every version. Threads are those of the OpenMP runtime that torch has loaded, found when first needed. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job.h"
#include "network.h"
#include "norm.h"
#include "product.h"
#include "refine.h"
#include "softmax.h"
#include "threads.h"

extern const Kernel *const scalar_kernels[NUM_DTYPES][2];
extern const Kernel *const baseline_kernels[NUM_DTYPES][2];
extern const NetworkKernels *const scalar_network[2];
extern const ProductKernels *const scalar_product[2];
extern const SoftmaxKernel scalar_softmax[2];
extern const NetworkKernels *const baseline_network[2];
extern const ProductKernels *const baseline_product[2];
extern const SoftmaxKernel baseline_softmax[2];
#if defined(__x86_64__)
extern const Kernel *const avx2_kernels[NUM_DTYPES][2];
extern const Kernel *const avx512_kernels[NUM_DTYPES][2];
extern const NetworkKernels *const avx2_network[2];
extern const ProductKernels *const avx2_product[2];
extern const SoftmaxKernel avx2_softmax[2];
extern const NetworkKernels *const avx512_network[2];
extern const ProductKernels *const avx512_product[2];
extern const SoftmaxKernel avx512_softmax[2];
#endif

typedef const Kernel *const (*KernelTable)[2];
typedef struct {
    const char *name;
    int bytes; /* of a vector */
    KernelTable kernels;
    /* Of float32 and float64. */
    const NetworkKernels *const *network;
    const ProductKernels *const *product;
    const SoftmaxKernel *softmax;
} Isa;

/* The widest first; a row narrower than a vector takes the next one. */
static Isa isas[4];
static int num_isas, first_isa;

static void find_isas(void) {
    num_isas = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
#ifdef SIRGCN_LOWER_VECTORS
    const int avx512 = 1, avx2 = 1;
#else
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    if (avx512) isas[num_isas++] = (Isa){"avx512", 64, avx512_kernels, avx512_network, avx512_product, avx512_softmax};
    if (avx2) isas[num_isas++] = (Isa){"avx2", 32, avx2_kernels, avx2_network, avx2_product, avx2_softmax};
#endif
    isas[num_isas++] = (Isa){"baseline", 16, baseline_kernels, baseline_network, baseline_product, baseline_softmax};
    isas[num_isas++] = (Isa){"scalar", 0, scalar_kernels, scalar_network, scalar_product, scalar_softmax};
}

static Kernel find_kernel(int dtype, int backward, int activation, int64_t width) {
    const int real = dtype == FLOAT64 ? 8 : 4;
    int i = first_isa;
    while (isas[i].bytes > width * real) i++;
    return isas[i].kernels[dtype][backward][activation];
}

/* Threads */

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

/* The process that loaded this module. One that it forks has the book of the OpenMP threads but not the threads: waiting for
   them would last for ever. */
static pid_t home;

void run(Task task, void *context, int64_t count, int threads) {
    Work work = {task, context, count, 0, 0};
    GompParallel parallel = threads > 1 && count > 1 && getpid() == home ? gomp_parallel() : 0;
    if (parallel)
        parallel(take_work, &work, count < threads ? (unsigned)count : (unsigned)threads, 0);
    else
        take_work(&work);
}

/* Aggregation */

typedef struct {
    Job *job;
    Kernel kernel;
    int real;
} Aggregation;

static void run_item(void *context, int64_t item, int worker) {
    (void)worker;
    Aggregation *a = context;
    a->kernel(a->job, item);
}

static void add_row(void *to, const void *from, int64_t width, int real) {
    if (real == 8)
        for (int64_t c = 0; c < width; c++) ((double *)to)[c] += ((const double *)from)[c];
    else
        for (int64_t c = 0; c < width; c++) ((float *)to)[c] += ((const float *)from)[c];
}

static void sum_table(void *context, int64_t type, int worker) {
    (void)worker;
    Aggregation *a = context;
    Job *job = a->job;
    int64_t row = job->width * a->real;
    char *to = (char *)job->grad_term + type * row;
    memset(to, 0, row);
    for (int64_t item = 0; item < job->num_items; item++)
        add_row(to, (char *)job->table_partial + (item * job->types + type) * row, job->width, a->real);
}

/* Edges and groups of one item. It is the same for every number of threads, so that sums are too. */
#define ITEM 1024
/* Parts of a table's gradient: few, as each holds a whole table. */
#define TABLE_ITEMS 64

/* A result of more bytes has left the cache before anyone reads it. */
#define LARGE (24 << 20)

/* Whether results are so large, and their rows so aligned, that they go past the cache. */
static int streams(const Job *job, int real) {
    const int edge_rows = job->grad_term && !job->edge_type;
    const int64_t row = job->width * real, rows = edge_rows && job->edges > job->groups ? job->edges : job->groups;
    const uintptr_t places = (uintptr_t)job->out | (uintptr_t)job->slope_sum | (edge_rows ? (uintptr_t)job->grad_term : 0);
    return rows * row >= LARGE && ((places | row | job->out_stride * real) & 63) == 0;
}

static int aggregate(Job *job, int dtype, int backward, int activation, int threads) {
    Aggregation a = {job, find_kernel(dtype, backward, activation, job->width), dtype == FLOAT64 ? 8 : 4};
    const int64_t units = job->edges + job->groups, table = job->types * job->width * a.real;
    const int with_table = backward && job->grad_term && job->edge_type;
    const int rows = !backward && job->slope_sum ? 2 : 1;
    job->item = ITEM;
    if (with_table && units > ITEM * TABLE_ITEMS) job->item = (units + TABLE_ITEMS - 1) / TABLE_ITEMS;
    /* A table larger than what the edges of an item would fill is not worth an item of its own. */
    if (with_table && job->item < job->types) job->item = job->types;
    job->num_items = (units + job->item - 1) / job->item;
    if (units == 0 || job->width == 0) {
        if (with_table) memset(job->grad_term, 0, table);
        return 0;
    }
    job->partial = malloc((size_t)job->num_items * rows * job->width * a.real);
    job->table_partial = with_table ? calloc(job->num_items, table ? table : 1) : 0;
    if (!job->partial || (with_table && !job->table_partial)) {
        free(job->partial);
        free(job->table_partial);
        return -1;
    }
    job->streams = streams(job, a.real);
    run(run_item, &a, job->num_items, threads);
    for (int64_t item = 1; item < job->num_items; item++) {
        int64_t unit = item * job->item, group = group_of_unit(job, unit);
        if (unit == index_at(job->ptr, job->wide_index, group) + group) continue;
        char *partial = (char *)job->partial + item * rows * job->width * a.real;
        add_row((char *)job->out + group * job->out_stride * a.real, partial, job->width, a.real);
        if (rows == 2)
            add_row((char *)job->slope_sum + group * job->width * a.real, partial + job->width * a.real, job->width, a.real);
    }
    if (with_table) run(sum_table, &a, job->types, threads);
    free(job->partial);
    free(job->table_partial);
    return 0;
}

/* Grouping */

typedef struct {
    const void *ends[2]; /* targets, sources */
    int wide_in, wide_out;
    int64_t edges, sizes[2];
    void *ptr[2], *node[2], *edge[2];
    int64_t bad[2]; /* the first entry out of range, or -1 */
    int failed;
} Grouping;

static inline void put(void *p, int wide, int64_t i, int64_t value) {
    if (wide)
        ((int64_t *)p)[i] = value;
    else
        ((int32_t *)p)[i] = (int32_t)value;
}

/* A counting sort by one end, which keeps the input's order within a group. */
static void group_by(void *context, int64_t side, int worker) {
    (void)worker;
    Grouping *g = context;
    const int64_t size = g->sizes[side];
    const void *by = g->ends[side], *other = g->ends[1 - side];
    g->bad[side] = -1;
    int64_t *next = calloc(size + 1, sizeof(int64_t));
    if (!next) {
        g->failed = 1;
        return;
    }
    for (int64_t i = 0; i < g->edges; i++) {
        int64_t group = index_at(by, g->wide_in, i);
        if (group < 0 || group >= size) {
            g->bad[side] = i;
            free(next);
            return;
        }
        next[group]++;
    }
    int64_t begin = 0;
    for (int64_t group = 0; group <= size; group++) {
        int64_t count = next[group];
        next[group] = begin;
        put(g->ptr[side], g->wide_out, group, begin);
        begin += count;
    }
    for (int64_t i = 0; i < g->edges; i++) {
        int64_t place = next[index_at(by, g->wide_in, i)]++;
        put(g->node[side], g->wide_out, place, index_at(other, g->wide_in, i));
        put(g->edge[side], g->wide_out, place, i);
    }
    free(next);
}

/* Tiles of the general route: rows of q + k, the maximum over neighbours, and sums into rows. A task is a block of columns,
   so that no two tasks write to the same place. */

typedef struct {
    int dtype, wide; /* float32 or float64; int64 indices */
    int64_t rows, width, block;
    const void *source, *index;
    int64_t source_stride;
    void *out;
    int64_t out_stride;
    int64_t *winner;
    int64_t start;
} Columns;

#define ADD_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        REAL *to = (REAL *)t->out + index_at(t->index, t->wide, i) * t->out_stride;                                     \
        const REAL *from = (const REAL *)t->source + i * t->source_stride;                                              \
        for (int64_t c = c0; c < c1; c++) to[c] += from[c];                                                             \
    }

static void add_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        ADD_ROWS(double)
    } else {
        ADD_ROWS(float)
    }
}

/* The first of equal maxima wins; NaN is larger than any number, and the first NaN wins. */
#define MAX_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        int64_t row = index_at(t->index, t->wide, i) * t->out_stride;                                                   \
        REAL *top = (REAL *)t->out + row;                                                                               \
        int64_t *winner = t->winner + row;                                                                              \
        const REAL *from = (const REAL *)t->source + i * t->source_stride;                                              \
        for (int64_t c = c0; c < c1; c++) {                                                                             \
            const REAL x = from[c], y = top[c];                                                                         \
            const int better = (winner[c] < 0) | (x > y) | ((x != x) & (y == y));                                       \
            top[c] = better ? x : y;                                                                                    \
            winner[c] = better ? t->start + i : winner[c];                                                              \
        }                                                                                                               \
    }

static void max_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        MAX_ROWS(double)
    } else {
        MAX_ROWS(float)
    }
}

#define WON_ROWS(REAL)                                                                                                  \
    for (int64_t i = 0; i < t->rows; i++) {                                                                             \
        int64_t row = index_at(t->index, t->wide, i);                                                                   \
        const REAL *from = (const REAL *)t->source + row * t->source_stride;                                            \
        const int64_t *winner = t->winner + row * t->width, place = t->start + i;                                       \
        REAL *to = (REAL *)t->out + i * t->out_stride;                                                                  \
        for (int64_t c = c0; c < c1; c++) to[c] = winner[c] == place ? from[c] : 0;                                     \
    }

/* The gradient of the maximum goes to the row that holds it. */
static void won_rows_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Columns *t = context;
    int64_t c0 = block * t->block, c1 = c0 + t->block < t->width ? c0 + t->block : t->width;
    if (t->dtype == FLOAT64) {
        WON_ROWS(double)
    } else {
        WON_ROWS(float)
    }
}

/* A task is a block of rows: out[i] = query[target[i]] + key[source[i]] (+ term[row[i]]). */

#define GATHER_BLOCK 64

typedef struct {
    int dtype, wide, wide_row;
    int64_t rows, width;
    const void *query, *key, *term;
    int64_t query_stride, key_stride, term_stride;
    const void *target, *source, *row;
    void *out;
} Gather;

#define GATHER_ROWS(REAL)                                                                                               \
    for (int64_t i = i0; i < i1; i++) {                                                                                 \
        const REAL *q = (const REAL *)t->query + index_at(t->target, t->wide, i) * t->query_stride;                     \
        const REAL *k = (const REAL *)t->key + index_at(t->source, t->wide, i) * t->key_stride;                         \
        REAL *to = (REAL *)t->out + i * t->width;                                                                       \
        if (t->term) {                                                                                                  \
            const REAL *e = (const REAL *)t->term + index_at(t->row, t->wide_row, i) * t->term_stride;                  \
            for (int64_t c = 0; c < t->width; c++) to[c] = q[c] + k[c] + e[c];                                          \
        } else {                                                                                                        \
            for (int64_t c = 0; c < t->width; c++) to[c] = q[c] + k[c];                                                 \
        }                                                                                                               \
    }

static void gather_block(void *context, int64_t block, int worker) {
    (void)worker;
    const Gather *t = context;
    int64_t i0 = block * GATHER_BLOCK, i1 = i0 + GATHER_BLOCK < t->rows ? i0 + GATHER_BLOCK : t->rows;
    if (t->dtype == FLOAT64) {
        GATHER_ROWS(double)
    } else {
        GATHER_ROWS(float)
    }
}

/* Python */

/* Numbers and addresses in the order of the call; an error is left for the caller to return. */
static int64_t number(PyObject *const *args, Py_ssize_t *i) { return PyLong_AsLongLong(args[(*i)++]); }
static void *address(PyObject *const *args, Py_ssize_t *i) { return PyLong_AsVoidPtr(args[(*i)++]); }

static int has_count(Py_ssize_t got, Py_ssize_t expected) {
    if (got == expected) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, got);
    return 0;
}

static PyObject *py_aggregate(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 30)) return NULL;
    Job job = {0};
    Py_ssize_t i = 0;
    const int backward = (int)number(args, &i), dtype = (int)number(args, &i), activation = (int)number(args, &i);
    job.slope = PyFloat_AsDouble(args[i++]);
    const int threads = (int)number(args, &i);
    job.width = number(args, &i);
    job.groups = number(args, &i);
    job.edges = number(args, &i);
    job.wide_index = (int)number(args, &i);
    job.ptr = address(args, &i);
    job.node = address(args, &i);
    job.edge = address(args, &i);
    job.self = address(args, &i);
    job.self_stride = number(args, &i);
    job.other = address(args, &i);
    job.other_stride = number(args, &i);
    job.grad = address(args, &i);
    job.grad_stride = number(args, &i);
    job.term = address(args, &i);
    job.types = number(args, &i);
    job.edge_type = address(args, &i);
    job.wide_type = (int)number(args, &i);
    job.edge_weight = address(args, &i);
    job.self_weight = address(args, &i);
    job.other_weight = address(args, &i);
    job.out = address(args, &i);
    job.out_stride = number(args, &i);
    job.slope_sum = address(args, &i);
    job.grad_term = address(args, &i);
    job.grad_weight = address(args, &i);
    if (PyErr_Occurred()) return NULL;
    if (dtype < 0 || dtype >= NUM_DTYPES || activation < 0 || activation >= NUM_ACTIVATIONS) {
        PyErr_SetString(PyExc_ValueError, "unknown dtype or activation");
        return NULL;
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = aggregate(&job, dtype, backward, activation, threads);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_network(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 37)) return NULL;
    Network net = {0};
    Py_ssize_t i = 0;
    const int backward = (int)number(args, &i), dtype = (int)number(args, &i), threads = (int)number(args, &i);
    net.is_max = (int)number(args, &i);
    net.first = (int)number(args, &i);
    net.first_slope = PyFloat_AsDouble(args[i++]);
    net.second = (int)number(args, &i);
    net.second_slope = PyFloat_AsDouble(args[i++]);
    net.targets = number(args, &i);
    net.edges = number(args, &i);
    net.d_in = number(args, &i);
    net.d_out = number(args, &i);
    net.wide_index = (int)number(args, &i);
    net.ptr = address(args, &i);
    net.node = address(args, &i);
    net.edge = address(args, &i);
    net.query = address(args, &i);
    net.query_stride = number(args, &i);
    net.key = address(args, &i);
    net.key_stride = number(args, &i);
    net.term = address(args, &i);
    net.edge_type = address(args, &i);
    net.wide_type = (int)number(args, &i);
    net.weight = address(args, &i);
    net.bias = address(args, &i);
    net.target_weight = address(args, &i);
    net.source_weight = address(args, &i);
    net.out = address(args, &i);
    net.winner = address(args, &i);
    net.marks = address(args, &i);
    net.grad = address(args, &i);
    net.grad_stride = number(args, &i);
    net.grad_query = address(args, &i);
    net.grad_key = address(args, &i);
    net.grad_term = address(args, &i);
    net.grad_weight = address(args, &i);
    net.grad_bias = address(args, &i);
    if (PyErr_Occurred()) return NULL;
    if ((dtype != FLOAT32 && dtype != FLOAT64) || net.first < 0 || net.first >= NUM_ACTIVATIONS || net.second < 0 ||
        net.second >= NUM_ACTIVATIONS) {
        PyErr_SetString(PyExc_ValueError, "unknown dtype or activation");
        return NULL;
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_network(&net, isas[first_isa].network[dtype], dtype == FLOAT64 ? 8 : 4, backward, threads);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_product(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 13)) return NULL;
    Product p = {0};
    Py_ssize_t i = 0;
    const int dtype = (int)number(args, &i), threads = (int)number(args, &i);
    p.m = number(args, &i);
    p.n = number(args, &i);
    p.depth = number(args, &i);
    p.a = address(args, &i);
    p.a_row = number(args, &i);
    p.a_step = number(args, &i);
    p.b = address(args, &i);
    p.b_row = number(args, &i);
    p.b_step = number(args, &i);
    p.bias = address(args, &i);
    p.c = address(args, &i);
    if (PyErr_Occurred()) return NULL;
    if (dtype != FLOAT32 && dtype != FLOAT64) {
        PyErr_SetString(PyExc_ValueError, "unknown dtype");
        return NULL;
    }
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_product(&p, isas[first_isa].product[dtype], dtype == FLOAT64 ? 8 : 4, threads);
    Py_END_ALLOW_THREADS
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_is_intel(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
#if defined(__x86_64__)
    return PyBool_FromLong(__builtin_cpu_is("intel"));
#else
    Py_RETURN_FALSE;
#endif
}

static PyObject *py_marks_size(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 6)) return NULL;
    Network net = {0};
    Py_ssize_t i = 0;
    const int dtype = (int)number(args, &i);
    net.second = (int)number(args, &i);
    net.targets = number(args, &i);
    net.edges = number(args, &i);
    net.d_in = number(args, &i);
    net.d_out = number(args, &i);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(marks_size(&net, isas[first_isa].network[dtype == FLOAT64], dtype == FLOAT64 ? 8 : 4));
}

static PyObject *py_group(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 14)) return NULL;
    Grouping g = {0};
    Py_ssize_t i = 0;
    g.ends[1] = address(args, &i);
    g.ends[0] = address(args, &i);
    g.wide_in = (int)number(args, &i);
    g.wide_out = (int)number(args, &i);
    g.edges = number(args, &i);
    g.sizes[1] = number(args, &i);
    g.sizes[0] = number(args, &i);
    for (int side = 0; side < 2; side++) {
        g.ptr[side] = address(args, &i);
        g.node[side] = address(args, &i);
        g.edge[side] = address(args, &i);
    }
    const int threads = (int)number(args, &i);
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    /* Waking a thread costs more than sorting a few edges. */
    run(group_by, &g, 2, g.edges > 8192 ? threads : 1);
    Py_END_ALLOW_THREADS
    if (g.failed) return PyErr_NoMemory();
    return Py_BuildValue("LL", (long long)g.bad[1], (long long)g.bad[0]);
}

static PyObject *py_rows(PyObject *const *args, Py_ssize_t count, Task task) {
    if (!has_count(count, 12)) return NULL;
    Columns t = {0};
    Py_ssize_t i = 0;
    t.dtype = (int)number(args, &i);
    t.rows = number(args, &i);
    t.width = number(args, &i);
    t.source = address(args, &i);
    t.source_stride = number(args, &i);
    t.index = address(args, &i);
    t.wide = (int)number(args, &i);
    t.out = address(args, &i);
    t.out_stride = number(args, &i);
    t.winner = address(args, &i);
    t.start = number(args, &i);
    const int threads = (int)number(args, &i);
    if (PyErr_Occurred()) return NULL;
    /* Whole cache lines of 16 floats, so that two threads do not share one. */
    t.block = ((t.width + threads - 1) / threads + 15) / 16 * 16;
    Py_BEGIN_ALLOW_THREADS
    run(task, &t, t.block ? (t.width + t.block - 1) / t.block : 0, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_add_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    return py_rows(args, count, add_rows_block);
}

static PyObject *py_max_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    return py_rows(args, count, max_rows_block);
}

static PyObject *py_won_rows(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    return py_rows(args, count, won_rows_block);
}

static PyObject *py_refine(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 15)) return NULL;
    Refinement r = {0};
    Py_ssize_t i = 0;
    r.ptr = address(args, &i);
    r.node = address(args, &i);
    r.edge = address(args, &i);
    r.wide = (int)number(args, &i);
    r.nodes = number(args, &i);
    r.kind = address(args, &i);
    r.edge_kind = address(args, &i);
    r.edge_kinds = number(args, &i);
    r.most = number(args, &i);
    r.finer = address(args, &i);
    r.first = address(args, &i);
    r.count = address(args, &i);
    r.source = address(args, &i);
    r.target = address(args, &i);
    r.edge_type = address(args, &i);
    if (PyErr_Occurred()) return NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = refine(&r);
    Py_END_ALLOW_THREADS
    if (result < 0) return PyErr_NoMemory();
    return Py_BuildValue("LL", result ? -1LL : (long long)r.num_kinds, (long long)r.num_edges);
}

typedef struct {
    const Softmax *softmax;
    SoftmaxKernel kernel;
} SoftmaxCall;

static void softmax_block(void *context, int64_t block, int worker) {
    const SoftmaxCall *call = context;
    (void)worker;
    call->kernel(call->softmax, block);
}

static PyObject *py_softmax(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 16)) return NULL;
    Softmax s = {0};
    Py_ssize_t i = 0;
    const int dtype = (int)number(args, &i), threads = (int)number(args, &i);
    s.ptr = address(args, &i);
    s.edge = address(args, &i);
    s.wide = (int)number(args, &i);
    s.groups = number(args, &i);
    s.heads = number(args, &i);
    s.in = address(args, &i);
    s.in_step = number(args, &i);
    s.in_head = number(args, &i);
    s.grad = address(args, &i);
    s.grad_step = number(args, &i);
    s.grad_head = number(args, &i);
    s.out = address(args, &i);
    s.out_step = number(args, &i);
    s.out_head = number(args, &i);
    if (PyErr_Occurred()) return NULL;
    SoftmaxCall call = {&s, isas[first_isa].softmax[dtype]};
    Py_BEGIN_ALLOW_THREADS
    run(softmax_block, &call, (s.groups + SOFTMAX_GROUPS - 1) / SOFTMAX_GROUPS, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_norm(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 16)) return NULL;
    Norm n = {0};
    Py_ssize_t i = 0;
    const int is_double = (int)number(args, &i), threads = (int)number(args, &i);
    n.rows = number(args, &i);
    n.width = number(args, &i);
    n.table = address(args, &i);
    n.share = address(args, &i);
    n.weight = address(args, &i);
    n.bias = address(args, &i);
    n.mean = address(args, &i);
    n.variance = address(args, &i);
    n.scale = address(args, &i);
    n.grad = address(args, &i);
    n.grad_weight = address(args, &i);
    n.grad_bias = address(args, &i);
    n.out = address(args, &i);
    n.eps = PyFloat_AsDouble(args[i]);
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_norm(&n, is_double, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_gather_add(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)self;
    if (!has_count(count, 16)) return NULL;
    Gather t = {0};
    Py_ssize_t i = 0;
    t.dtype = (int)number(args, &i);
    t.rows = number(args, &i);
    t.width = number(args, &i);
    t.query = address(args, &i);
    t.query_stride = number(args, &i);
    t.key = address(args, &i);
    t.key_stride = number(args, &i);
    t.term = address(args, &i);
    t.term_stride = number(args, &i);
    t.target = address(args, &i);
    t.source = address(args, &i);
    t.row = address(args, &i);
    t.wide = (int)number(args, &i);
    t.wide_row = (int)number(args, &i);
    t.out = address(args, &i);
    const int threads = (int)number(args, &i);
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    run(gather_block, &t, (t.rows + GATHER_BLOCK - 1) / GATHER_BLOCK, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_isas(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    PyObject *names = PyList_New(0);
    for (int i = first_isa; names && i < num_isas; i++) {
        PyObject *name = PyUnicode_FromString(isas[i].name);
        if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *py_limit_isa(PyObject *self, PyObject *argument) {
    (void)self;
    PyObject *bytes = PyUnicode_AsUTF8String(argument);
    if (!bytes) return NULL;
    int found = -1;
    for (int i = 0; i < num_isas; i++)
        if (!strcmp(isas[i].name, PyBytes_AsString(bytes))) found = i;
    Py_DECREF(bytes);
    if (found >= 0) first_isa = found;
    return PyBool_FromLong(found >= 0);
}

static PyObject *py_has_threads(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyBool_FromLong(gomp_parallel() != 0);
}

static PyMethodDef methods[] = {
    {"aggregate", (PyCFunction)(void (*)(void))py_aggregate, METH_FASTCALL, "One pass over the grouped edges."},
    {"network", (PyCFunction)(void (*)(void))py_network, METH_FASTCALL, "One pass of a message network over the edges."},
    {"product", (PyCFunction)(void (*)(void))py_product, METH_FASTCALL, "A matrix product, with a bias or without."},
    {"is_intel", py_is_intel, METH_NOARGS, "Whether the processor is one of Intel's."},
    {"marks_size", (PyCFunction)(void (*)(void))py_marks_size, METH_FASTCALL, "The bytes of marks that it can use."},
    {"group", (PyCFunction)(void (*)(void))py_group, METH_FASTCALL, "Edges grouped by target and by source."},
    {"refine", (PyCFunction)(void (*)(void))py_refine, METH_FASTCALL, "Kinds of nodes by the kinds of their neighbours."},
    {"norm", (PyCFunction)(void (*)(void))py_norm, METH_FASTCALL, "Batch norm of rows that weigh differently."},
    {"softmax", (PyCFunction)(void (*)(void))py_softmax, METH_FASTCALL, "The softmax of edges over every neighbourhood."},
    {"gather_add", (PyCFunction)(void (*)(void))py_gather_add, METH_FASTCALL, "The sum of both ends' rows for every edge."},
    {"add_rows", (PyCFunction)(void (*)(void))py_add_rows, METH_FASTCALL, "Add rows into the rows of an index."},
    {"max_rows", (PyCFunction)(void (*)(void))py_max_rows, METH_FASTCALL, "The maximum of rows, and which one holds it."},
    {"won_rows", (PyCFunction)(void (*)(void))py_won_rows, METH_FASTCALL, "Rows of an index, 0 where another one won."},
    {"isas", py_isas, METH_NOARGS, "The instruction sets in use, the widest first."},
    {"limit_isa", py_limit_isa, METH_O, "Use none wider than the one named; False if this machine lacks it."},
    {"has_threads", py_has_threads, METH_NOARGS, "Whether an OpenMP runtime was found."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernels", "The edge loops of sir_aggregate.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    find_isas();
    home = getpid();
    return PyModule_Create(&definition);
}
