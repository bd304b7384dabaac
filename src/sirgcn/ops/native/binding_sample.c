/* The functions of the Python module that sample a graph. */
#include "binding.h"
#include "grouping.h"
#include "sample.h"

#define SHARED_FUNCTION(name) FUNCTION_OF(, name)

SHARED_FUNCTION(group_targets) {
#define GROUPING(name, member, type) FIELD_NAMED(name, Grouping, member, FIELD_##type, 0)
    static const Field fields[] = {
        GROUPING("source", ends[1], ADDRESS), GROUPING("target", ends[0], ADDRESS), GROUPING("wide_in", wide_in, INT),
        GROUPING("wide_out", wide_out, INT), GROUPING("edges", edges, INT64), GROUPING("num_sources", sizes[1], INT64),
        GROUPING("num_targets", sizes[0], INT64), GROUPING("ptr", ptr[0], ADDRESS), GROUPING("node", node[0], ADDRESS),
        FIELD_NAMED("edge", Grouping, edge[0], FIELD_ADDRESS, 1),
    };
    Grouping grouping = {0};
    if (!FILL(grouping, "group_targets", fields, arguments)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    group_targets(&grouping);
    Py_END_ALLOW_THREADS
    if (grouping.failed) return PyErr_NoMemory();
    return Py_BuildValue("LL", (long long)grouping.bad[1], (long long)grouping.bad[0]);
}

typedef struct {
    Hop hop;
    int threads;
} HopCall;

#define HOP(type, member) FIELD_NAMED(#member, HopCall, hop.member, FIELD_##type, 0)
#define OPTIONAL_HOP(type, member) FIELD_NAMED(#member, HopCall, hop.member, FIELD_##type, 1)

static int read_hop(HopCall *call, const char *function, Arguments arguments) {
    static const Field fields[] = {
        HOP(ADDRESS, ptr), HOP(ADDRESS, node), OPTIONAL_HOP(ADDRESS, edge), HOP(INT, wide_ptr), HOP(INT, wide),
        HOP(INT64, sources), HOP(INT64, targets), HOP(ADDRESS, frontier), HOP(INT64, count), OPTIONAL_HOP(ADDRESS, root),
        HOP(INT64, fanout), HOP(INT, replace), HOP(INT64, seed), HOP(ADDRESS, offset), OPTIONAL_HOP(ADDRESS, found),
        OPTIONAL_HOP(ADDRESS, owner), OPTIONAL_HOP(ADDRESS, place), INT(HopCall, threads),
    };
    return FILL(*call, function, fields, arguments) && is_thread_count(function, call->threads);
}

SHARED_FUNCTION(count_drawn) {
    HopCall call = {0};
    if (!read_hop(&call, "count_drawn", arguments)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    count_drawn(&call.hop, call.threads);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(call.hop.offset[call.hop.count]);
}

SHARED_FUNCTION(draw) {
    HopCall call = {0};
    if (!read_hop(&call, "draw", arguments)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    draw(&call.hop, call.threads);
    Py_END_ALLOW_THREADS
    if (call.hop.failed == 2) {
        PyErr_Format(PyExc_ValueError, "node: expected numbers below %lld", (long long)call.hop.sources);
        return NULL;
    }
    return none_unless(call.hop.failed);
}

SHARED_FUNCTION(number) {
    static const Field fields[] = {
        ADDRESS(Numbering, table), INT64(Numbering, slots), ADDRESS(Numbering, key), INT64(Numbering, known),
        ADDRESS(Numbering, found), INT64(Numbering, count), ADDRESS(Numbering, number), INT(Numbering, mode),
    };
    Numbering numbering = {0};
    if (!FILL(numbering, "number", fields, arguments)) return NULL;
    int64_t done;
    Py_BEGIN_ALLOW_THREADS
    done = run_numbering(&numbering);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("LL", (long long)done, (long long)numbering.known);
}
