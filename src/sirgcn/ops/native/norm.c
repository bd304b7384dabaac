/* Batch norm of rows that stand for different numbers of equal rows. */
#include "norm.h"

#include <math.h>

#include "threads.h"

/* The columns of a task, and the rows that are summed in the dtype of the table before the sums of all rows, in double, are updated. */
#define COLUMNS 40
#define ROWS 32

#define REAL float
#define NAME(name) name##_float
#include "norm_rows.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##_double
#include "norm_rows.h"

void run_norm(const Norm *n, int is_double, int threads) {
    run(is_double ? columns_double : columns_float, (void *)n, (n->width + COLUMNS - 1) / COLUMNS, threads);
}
