/* The aggregation: how its work is divided into items, and how the partial sums of a group that several items share are added. */
#include "aggregate.h"

#include <stdlib.h>
#include <string.h>

#include "isas.h"
#include "threads.h"

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

/* Edges and groups of one item. It does not depend on the number of threads, so that sums do not either. */
#define ITEM 1024
/* The most partial gradients of a table. They are few, because each has the size of the whole table. */
#define TABLE_ITEMS 64

/* A larger result has left the cache before it is read again. */
#define LARGE (24 << 20)

/* Whether results are large enough, and their rows aligned, so that they are written past the cache. */
static int streams(const Job *job, int real) {
    const int edge_rows = job->grad_term && !job->edge_type;
    const int64_t row = job->width * real, rows = edge_rows && job->edges > job->groups ? job->edges : job->groups;
    const uintptr_t places = (uintptr_t)job->out | (uintptr_t)job->slope_sum | (edge_rows ? (uintptr_t)job->grad_term : 0);
    return rows * row >= LARGE && ((places | row | job->out_stride * real) & 63) == 0;
}

int begin_items(Job *job, int with_table, int rows, int real) {
    const int64_t units = job->edges + job->groups, table = job->types * job->width * real;
    job->item = ITEM;
    if (with_table && units > ITEM * TABLE_ITEMS) job->item = (units + TABLE_ITEMS - 1) / TABLE_ITEMS;
    /* An item does not get a table of its own if the table is larger than what the item's edges would fill. */
    if (with_table && job->item < job->types) job->item = job->types;
    job->num_items = job->width ? (units + job->item - 1) / job->item : 0;
    if (job->num_items == 0) {
        if (with_table) memset(job->grad_term, 0, table);
        return 0;
    }
    job->partial = malloc((size_t)job->num_items * rows * job->width * real);
    job->table_partial = with_table ? calloc(job->num_items, table ? table : 1) : 0;
    if (job->partial && (!with_table || job->table_partial)) return 0;
    end_items(job, 0, real, 1);
    return -1;
}

void end_items(Job *job, int with_table, int real, int threads) {
    if (with_table) run(sum_table, &(Aggregation){job, 0, real}, job->types, threads);
    free(job->partial);
    free(job->table_partial);
}

int run_aggregate(Job *job, int dtype, int backward, int activation, int threads) {
    Aggregation a = {job, find_kernel(dtype, backward, activation, job->width), dtype == FLOAT64 ? 8 : 4};
    const int with_table = backward && job->grad_term && job->edge_type;
    const int rows = !backward && job->slope_sum ? 2 : 1;
    if (begin_items(job, with_table, rows, a.real)) return -1;
    if (job->num_items == 0) return 0;
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
    end_items(job, with_table, a.real, threads);
    return 0;
}
