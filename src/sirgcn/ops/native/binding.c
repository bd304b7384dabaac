/* The Python module. It knows nothing of torch: tensors arrive as addresses, sizes and strides, so that one build works with every
   version. A function fills a structure from its keyword arguments, releases Python's lock, and calls the C code. */
#include "aggregate.h"
#include "binding.h"
#include "gated.h"
#include "grouping.h"
#include "isas.h"
#include "norm.h"
#include "refine.h"
#include "rows.h"
#include "threads.h"

#define WIDEST 0 /* the place of the widest instruction set in use */
#define SIZE_OF(dtype) ((dtype) == FLOAT64 ? 8 : 4)

static int is_dtype(const char *function, int dtype, int has_bfloat16) {
    if (dtype == FLOAT32 || dtype == FLOAT64 || (has_bfloat16 && dtype == BFLOAT16)) return 1;
    return refuse_value(function, "dtype", dtype);
}

static int is_activation(const char *function, const char *argument, int activation) {
    if (activation >= 0 && activation < NUM_ACTIVATIONS) return 1;
    return refuse_value(function, argument, activation);
}

typedef struct {
    Job job;
    int backward, dtype, activation, threads;
} AggregateCall;

#define JOB(type, member) FIELD_NAMED(#member, AggregateCall, job.member, FIELD_##type, 0)
#define OPTIONAL_JOB(type, member) FIELD_NAMED(#member, AggregateCall, job.member, FIELD_##type, 1)

FUNCTION(aggregate) {
    static const Field fields[] = {
        INT(AggregateCall, backward), INT(AggregateCall, dtype), INT(AggregateCall, activation), JOB(DOUBLE, slope),
        INT(AggregateCall, threads), JOB(INT64, width), JOB(INT64, groups), JOB(INT64, edges), JOB(INT, wide_index),
        JOB(ADDRESS, ptr), JOB(ADDRESS, node), JOB(ADDRESS, edge), JOB(ADDRESS, self), JOB(INT64, self_stride),
        JOB(ADDRESS, other), JOB(INT64, other_stride), JOB(ADDRESS, out), JOB(INT64, out_stride),
        OPTIONAL_JOB(ADDRESS, grad), OPTIONAL_JOB(INT64, grad_stride), OPTIONAL_JOB(ADDRESS, term),
        OPTIONAL_JOB(INT64, types), OPTIONAL_JOB(ADDRESS, edge_type), OPTIONAL_JOB(INT, wide_type),
        OPTIONAL_JOB(ADDRESS, edge_weight), OPTIONAL_JOB(ADDRESS, self_weight), OPTIONAL_JOB(ADDRESS, other_weight),
        OPTIONAL_JOB(ADDRESS, slope_sum), OPTIONAL_JOB(ADDRESS, grad_term), OPTIONAL_JOB(ADDRESS, grad_weight),
    };
    AggregateCall call = {0};
    if (!FILL(call, "aggregate", fields, arguments) || !is_dtype("aggregate", call.dtype, 1) ||
        !is_activation("aggregate", "activation", call.activation) || !is_thread_count("aggregate", call.threads))
        return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_aggregate(&call.job, call.dtype, call.backward != 0, call.activation, call.threads);
    Py_END_ALLOW_THREADS
    return none_unless(failed);
}

typedef struct {
    Gated gated;
    int backward, dtype, threads;
} GatedCall;

#define GATED(type, member) FIELD_NAMED(#member, GatedCall, gated.member, FIELD_##type, 0)
#define OPTIONAL_GATED(type, member) FIELD_NAMED(#member, GatedCall, gated.member, FIELD_##type, 1)
#define GATED_JOB(type, member) FIELD_NAMED(#member, GatedCall, gated.job.member, FIELD_##type, 0)
#define OPTIONAL_GATED_JOB(type, member) FIELD_NAMED(#member, GatedCall, gated.job.member, FIELD_##type, 1)

FUNCTION(gated) {
    static const Field fields[] = {
        INT(GatedCall, backward), INT(GatedCall, dtype), INT(GatedCall, threads), GATED(INT, sigma), GATED_JOB(DOUBLE, slope),
        GATED(INT, normalized), GATED(DOUBLE, epsilon), GATED_JOB(INT64, width), GATED_JOB(INT64, groups), GATED_JOB(INT64, edges),
        GATED_JOB(INT, wide_index), GATED_JOB(ADDRESS, ptr), GATED_JOB(ADDRESS, node), GATED_JOB(ADDRESS, edge),
        OPTIONAL_GATED_JOB(ADDRESS, term), OPTIONAL_GATED_JOB(INT64, types), OPTIONAL_GATED_JOB(ADDRESS, edge_type),
        OPTIONAL_GATED_JOB(INT, wide_type), OPTIONAL_GATED_JOB(ADDRESS, edge_weight), OPTIONAL_GATED_JOB(ADDRESS, self_weight),
        OPTIONAL_GATED_JOB(ADDRESS, other_weight), GATED_JOB(ADDRESS, self), GATED_JOB(INT64, self_stride),
        GATED(ADDRESS, value), GATED(INT64, value_stride), GATED_JOB(ADDRESS, out), GATED_JOB(INT64, out_stride),
        GATED(ADDRESS, mean), GATED(ADDRESS, share), GATED_JOB(ADDRESS, other), GATED_JOB(INT64, other_stride),
        GATED(INT64, others), OPTIONAL_GATED(ADDRESS, start), OPTIONAL_GATED(INT64, start_stride),
        OPTIONAL_GATED_JOB(ADDRESS, slope_sum), OPTIONAL_GATED_JOB(ADDRESS, grad), OPTIONAL_GATED_JOB(INT64, grad_stride),
        OPTIONAL_GATED(ADDRESS, grad_query), OPTIONAL_GATED(INT64, grad_query_stride), OPTIONAL_GATED(ADDRESS, grad_start),
        OPTIONAL_GATED(INT64, grad_start_stride),
        OPTIONAL_GATED(ADDRESS, grad_value), OPTIONAL_GATED(INT64, grad_value_stride), OPTIONAL_GATED_JOB(ADDRESS, grad_term),
        OPTIONAL_GATED_JOB(ADDRESS, grad_weight),
    };
    GatedCall call = {0};
    if (!FILL(call, "gated", fields, arguments) || !is_dtype("gated", call.dtype, 0) ||
        !is_activation("gated", "sigma", call.gated.sigma) || !is_thread_count("gated", call.threads))
        return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_gated(&call.gated, call.dtype, call.backward != 0, call.threads);
    Py_END_ALLOW_THREADS
    return none_unless(failed);
}

typedef struct {
    Network net;
    int backward, dtype, threads;
} NetworkCall;

#define NET(type, member) FIELD_NAMED(#member, NetworkCall, net.member, FIELD_##type, 0)
#define OPTIONAL_NET(type, member) FIELD_NAMED(#member, NetworkCall, net.member, FIELD_##type, 1)

static int is_network(const char *function, const NetworkCall *call) {
    return is_dtype(function, call->dtype, 0) && is_activation(function, "first", call->net.first) &&
           is_activation(function, "second", call->net.second);
}

FUNCTION(network) {
    static const Field fields[] = {
        INT(NetworkCall, backward), INT(NetworkCall, dtype), INT(NetworkCall, threads), NET(INT, is_max), NET(INT, first),
        NET(DOUBLE, first_slope), NET(INT, second), NET(DOUBLE, second_slope), NET(INT64, targets), NET(INT64, edges),
        NET(INT64, d_in), NET(INT64, d_out), NET(INT, wide_index), NET(ADDRESS, ptr), NET(ADDRESS, node), NET(ADDRESS, edge),
        NET(ADDRESS, query), NET(INT64, query_stride), NET(ADDRESS, key), NET(INT64, key_stride), NET(ADDRESS, weight),
        OPTIONAL_NET(ADDRESS, bias), OPTIONAL_NET(ADDRESS, term), OPTIONAL_NET(ADDRESS, edge_type),
        OPTIONAL_NET(INT, wide_type), OPTIONAL_NET(ADDRESS, target_weight), OPTIONAL_NET(ADDRESS, source_weight),
        OPTIONAL_NET(ADDRESS, out), OPTIONAL_NET(ADDRESS, winner), OPTIONAL_NET(ADDRESS, marks), OPTIONAL_NET(ADDRESS, grad),
        OPTIONAL_NET(INT64, grad_stride), OPTIONAL_NET(ADDRESS, grad_query), OPTIONAL_NET(ADDRESS, grad_key),
        OPTIONAL_NET(ADDRESS, grad_term), OPTIONAL_NET(ADDRESS, grad_weight), OPTIONAL_NET(ADDRESS, grad_bias),
    };
    NetworkCall call = {0};
    if (!FILL(call, "network", fields, arguments) || !is_network("network", &call) ||
        !is_thread_count("network", call.threads))
        return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_network(&call.net, isa_at(WIDEST)->network[call.dtype], SIZE_OF(call.dtype), call.backward, call.threads);
    Py_END_ALLOW_THREADS
    return none_unless(failed);
}

FUNCTION(marks_size) {
    static const Field fields[] = {
        INT(NetworkCall, dtype), NET(INT, second), NET(INT64, targets), NET(INT64, edges), NET(INT64, d_in), NET(INT64, d_out),
    };
    NetworkCall call = {0};
    if (!FILL(call, "marks_size", fields, arguments) || !is_network("marks_size", &call)) return NULL;
    return PyLong_FromLongLong(marks_size(&call.net, isa_at(WIDEST)->network[call.dtype], SIZE_OF(call.dtype)));
}

typedef struct {
    Product product;
    int dtype, threads;
} ProductCall;

#define PRODUCT(kind, member) FIELD_NAMED(#member, ProductCall, product.member, FIELD_##kind, 0)

FUNCTION(product) {
    static const Field fields[] = {
        INT(ProductCall, dtype), INT(ProductCall, threads), PRODUCT(INT64, m), PRODUCT(INT64, n), PRODUCT(INT64, depth),
        PRODUCT(ADDRESS, a), PRODUCT(INT64, a_row), PRODUCT(INT64, a_step), PRODUCT(ADDRESS, b), PRODUCT(INT64, b_row),
        PRODUCT(INT64, b_step), PRODUCT(ADDRESS, c), FIELD_NAMED("bias", ProductCall, product.bias, FIELD_ADDRESS, 1),
    };
    ProductCall call = {0};
    if (!FILL(call, "product", fields, arguments) || !is_dtype("product", call.dtype, 0) ||
        !is_thread_count("product", call.threads))
        return NULL;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = run_product(&call.product, isa_at(WIDEST)->product[call.dtype], SIZE_OF(call.dtype), call.threads);
    Py_END_ALLOW_THREADS
    return none_unless(failed);
}

typedef struct {
    Grouping grouping;
    int threads;
} GroupingCall;

#define GROUPING(name, member, type) FIELD_NAMED(name, GroupingCall, grouping.member, FIELD_##type, 0)

FUNCTION(group) {
    static const Field fields[] = {
        GROUPING("source", ends[1], ADDRESS), GROUPING("target", ends[0], ADDRESS), GROUPING("wide_in", wide_in, INT),
        GROUPING("wide_out", wide_out, INT), GROUPING("edges", edges, INT64), GROUPING("num_sources", sizes[1], INT64),
        GROUPING("num_targets", sizes[0], INT64), GROUPING("target_ptr", ptr[0], ADDRESS),
        GROUPING("target_node", node[0], ADDRESS), GROUPING("target_edge", edge[0], ADDRESS),
        GROUPING("source_ptr", ptr[1], ADDRESS), GROUPING("source_node", node[1], ADDRESS),
        GROUPING("source_edge", edge[1], ADDRESS), INT(GroupingCall, threads),
    };
    GroupingCall call = {0};
    if (!FILL(call, "group", fields, arguments) || !is_thread_count("group", call.threads)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_grouping(&call.grouping, call.threads);
    Py_END_ALLOW_THREADS
    if (call.grouping.failed) return PyErr_NoMemory();
    return Py_BuildValue("LL", (long long)call.grouping.bad[1], (long long)call.grouping.bad[0]);
}

typedef struct {
    Columns columns;
    int threads;
} ColumnsCall;

#define COLUMNS(type, member) FIELD_NAMED(#member, ColumnsCall, columns.member, FIELD_##type, 0)

static PyObject *call_columns(const char *function, void (*work)(Columns *, int), Arguments arguments) {
    static const Field fields[] = {
        COLUMNS(INT, dtype), COLUMNS(INT64, rows), COLUMNS(INT64, width), COLUMNS(ADDRESS, source), COLUMNS(INT64, source_stride),
        COLUMNS(ADDRESS, index), COLUMNS(INT, wide), COLUMNS(ADDRESS, out), COLUMNS(INT64, out_stride), INT(ColumnsCall, threads),
        FIELD_NAMED("winner", ColumnsCall, columns.winner, FIELD_ADDRESS, 1),
        FIELD_NAMED("start", ColumnsCall, columns.start, FIELD_INT64, 1),
    };
    ColumnsCall call = {0};
    if (!FILL(call, function, fields, arguments) || !is_dtype(function, call.columns.dtype, 0) ||
        !is_thread_count(function, call.threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    work(&call.columns, call.threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

FUNCTION(add_rows) { return call_columns("add_rows", add_rows, arguments); }
FUNCTION(max_rows) { return call_columns("max_rows", max_rows, arguments); }
FUNCTION(won_rows) { return call_columns("won_rows", won_rows, arguments); }

typedef struct {
    Gather gather;
    int threads;
} GatherCall;

#define GATHER(type, member) FIELD_NAMED(#member, GatherCall, gather.member, FIELD_##type, 0)
#define OPTIONAL_GATHER(type, member) FIELD_NAMED(#member, GatherCall, gather.member, FIELD_##type, 1)

FUNCTION(gather_add) {
    static const Field fields[] = {
        GATHER(INT, dtype), GATHER(INT64, rows), GATHER(INT64, width), GATHER(ADDRESS, query), GATHER(INT64, query_stride),
        GATHER(ADDRESS, key), GATHER(INT64, key_stride), OPTIONAL_GATHER(ADDRESS, term), OPTIONAL_GATHER(INT64, term_stride),
        GATHER(ADDRESS, target), GATHER(ADDRESS, source), GATHER(INT, wide), OPTIONAL_GATHER(ADDRESS, row),
        OPTIONAL_GATHER(INT, wide_row), GATHER(ADDRESS, out), INT(GatherCall, threads),
    };
    GatherCall call = {0};
    if (!FILL(call, "gather_add", fields, arguments) || !is_dtype("gather_add", call.gather.dtype, 0) ||
        !is_thread_count("gather_add", call.threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    gather_rows(&call.gather, call.threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

FUNCTION(refine) {
    static const Field fields[] = {
        ADDRESS(Refinement, ptr), ADDRESS(Refinement, node), ADDRESS(Refinement, edge), INT(Refinement, wide),
        INT64(Refinement, nodes), ADDRESS(Refinement, kind), OPTIONAL_ADDRESS(Refinement, edge_kind),
        INT64(Refinement, edge_kinds), INT64(Refinement, most), ADDRESS(Refinement, finer), ADDRESS(Refinement, first),
        ADDRESS(Refinement, count), ADDRESS(Refinement, source), ADDRESS(Refinement, target), ADDRESS(Refinement, edge_type),
    };
    Refinement r = {0};
    if (!FILL(r, "refine", fields, arguments)) return NULL;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = refine(&r);
    Py_END_ALLOW_THREADS
    if (result < 0) return PyErr_NoMemory();
    return Py_BuildValue("LL", result ? -1LL : (long long)r.num_kinds, (long long)r.num_edges);
}

typedef struct {
    Softmax softmax;
    SoftmaxKernel kernel;
    int dtype, threads;
} SoftmaxCall;

#define SOFTMAX(type, member) FIELD_NAMED(#member, SoftmaxCall, softmax.member, FIELD_##type, 0)
#define OPTIONAL_SOFTMAX(type, member) FIELD_NAMED(#member, SoftmaxCall, softmax.member, FIELD_##type, 1)

static void softmax_block(void *context, int64_t block, int worker) {
    const SoftmaxCall *call = context;
    (void)worker;
    call->kernel(&call->softmax, block);
}

FUNCTION(softmax) {
    static const Field fields[] = {
        INT(SoftmaxCall, dtype), INT(SoftmaxCall, threads), SOFTMAX(ADDRESS, ptr), SOFTMAX(ADDRESS, edge), SOFTMAX(INT, wide),
        SOFTMAX(INT64, groups), SOFTMAX(INT64, heads), SOFTMAX(ADDRESS, given), SOFTMAX(INT64, given_step), SOFTMAX(INT64, given_head),
        OPTIONAL_SOFTMAX(ADDRESS, grad), OPTIONAL_SOFTMAX(INT64, grad_step), OPTIONAL_SOFTMAX(INT64, grad_head),
        SOFTMAX(ADDRESS, out), SOFTMAX(INT64, out_step), SOFTMAX(INT64, out_head),
    };
    SoftmaxCall call = {0};
    if (!FILL(call, "softmax", fields, arguments) || !is_dtype("softmax", call.dtype, 0) ||
        !is_thread_count("softmax", call.threads))
        return NULL;
    call.kernel = isa_at(WIDEST)->softmax[call.dtype];
    Py_BEGIN_ALLOW_THREADS
    run(softmax_block, &call, (call.softmax.groups + SOFTMAX_GROUPS - 1) / SOFTMAX_GROUPS, call.threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

typedef struct {
    Norm norm;
    int dtype, threads;
} NormCall;

#define NORM(type, member) FIELD_NAMED(#member, NormCall, norm.member, FIELD_##type, 0)
#define OPTIONAL_NORM(type, member) FIELD_NAMED(#member, NormCall, norm.member, FIELD_##type, 1)

FUNCTION(norm) {
    static const Field fields[] = {
        INT(NormCall, dtype), INT(NormCall, threads), NORM(INT64, rows), NORM(INT64, width), NORM(ADDRESS, table),
        NORM(ADDRESS, share), NORM(ADDRESS, weight), OPTIONAL_NORM(ADDRESS, bias), NORM(ADDRESS, mean),
        OPTIONAL_NORM(ADDRESS, variance), NORM(ADDRESS, scale), OPTIONAL_NORM(ADDRESS, grad),
        OPTIONAL_NORM(ADDRESS, grad_weight), OPTIONAL_NORM(ADDRESS, grad_bias), NORM(ADDRESS, out), NORM(DOUBLE, eps),
    };
    NormCall call = {0};
    if (!FILL(call, "norm", fields, arguments) || !is_dtype("norm", call.dtype, 0) || !is_thread_count("norm", call.threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_norm(&call.norm, call.dtype == FLOAT64, call.threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *names_of(const char *const *names, int count) {
    PyObject *found = PyTuple_New(count);
    for (int i = 0; found && i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        if (!name || PyTuple_SetItem(found, i, name) < 0) Py_CLEAR(found);
    }
    return found;
}

static PyObject *py_activations(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    static const char *const names[] = {
#define ACTIVATION(constant, name, ...) [constant] = #name,
#include "activations.def"
#undef ACTIVATION
    };
    return names_of(names, NUM_ACTIVATIONS);
}

static PyObject *py_dtypes(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    static const char *const names[] = {[FLOAT32] = "float32", [FLOAT64] = "float64", [BFLOAT16] = "bfloat16"};
    return names_of(names, NUM_DTYPES);
}

static PyObject *py_isas(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    const char *names[8];
    int count = 0;
    for (const Isa *isa = isa_at(WIDEST); isa; isa = isa_at(count)) names[count++] = isa->name;
    PyObject *found = names_of(names, count), *list = found ? PySequence_List(found) : NULL;
    Py_XDECREF(found);
    return list;
}

static PyObject *py_limit_isa(PyObject *self, PyObject *argument) {
    (void)self;
    const char *name = PyUnicode_AsUTF8AndSize(argument, 0);
    return name ? PyBool_FromLong(limit_isa(name)) : NULL;
}

static PyObject *py_has_threads(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyBool_FromLong(has_threads());
}

static PyObject *py_is_intel(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
#if defined(__x86_64__)
    return PyBool_FromLong(__builtin_cpu_is("intel"));
#else
    Py_RETURN_FALSE;
#endif
}

#define METHOD(name, text) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL | METH_KEYWORDS, text}

static PyMethodDef methods[] = {
    METHOD(aggregate, "One pass over the grouped edges."),
    METHOD(gated, "One pass of messages with a value over the grouped edges."),
    METHOD(network, "One pass of a message network over the edges."),
    METHOD(marks_size, "The bytes of marks that a message network can use."),
    METHOD(product, "A matrix product, with a bias or without."),
    METHOD(group, "Edges grouped by target and by source."),
    METHOD(group_targets, "Edges grouped by target only."),
    METHOD(count_drawn, "How many neighbours every target will have drawn."),
    METHOD(draw, "Neighbours of targets, drawn at random."),
    METHOD(number, "Numbers of keys in the order in which they are first seen."),
    METHOD(refine, "Kinds of nodes by the kinds of their neighbours."),
    METHOD(norm, "Batch norm of rows that weigh differently."),
    METHOD(softmax, "The softmax of edges over every neighbourhood."),
    METHOD(gather_add, "The sum of both ends' rows for every edge."),
    METHOD(add_rows, "Add rows into the rows of an index."),
    METHOD(max_rows, "The maximum of rows, and which one holds it."),
    METHOD(won_rows, "Rows of an index, 0 where another one won."),
    {"activations", py_activations, METH_NOARGS, "The names of the activations, each at its number."},
    {"dtypes", py_dtypes, METH_NOARGS, "The names of the dtypes, each at its number."},
    {"isas", py_isas, METH_NOARGS, "The instruction sets in use, the widest first."},
    {"limit_isa", py_limit_isa, METH_O, "Use none wider than the one named; False if this machine lacks it."},
    {"has_threads", py_has_threads, METH_NOARGS, "Whether an OpenMP runtime was found."},
    {"is_intel", py_is_intel, METH_NOARGS, "Whether the processor is one of Intel's."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernels", "The edge loops of sir_aggregate.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    find_isas();
    start_threads();
    return PyModule_Create(&definition);
}
