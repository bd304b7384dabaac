/* Batch norm of a block of columns, for one dtype. These must be defined before: REAL, NAME. */

static void NAME(forward)(const Norm *n, int64_t from, int width) {
    const int64_t stride = n->width;
    const REAL *table = (const REAL *)n->table + from, *bias = (const REAL *)n->bias + from, *share = n->share;
    REAL *out = (REAL *)n->out + from, mean[COLUMNS], factor[COLUMNS], part[COLUMNS];
    double total[COLUMNS] = {0}, squares[COLUMNS] = {0};
    for (int64_t first = 0; first < n->rows; first += ROWS) {
        for (int j = 0; j < width; j++) part[j] = 0;
        for (int64_t i = first; i < n->rows && i < first + ROWS; i++)
            for (int j = 0; j < width; j++) part[j] += share[i] * table[i * stride + j];
        for (int j = 0; j < width; j++) total[j] += part[j];
    }
    for (int j = 0; j < width; j++) mean[j] = (REAL)total[j];
    for (int64_t first = 0; first < n->rows; first += ROWS) {
        for (int j = 0; j < width; j++) part[j] = 0;
        for (int64_t i = first; i < n->rows && i < first + ROWS; i++)
            for (int j = 0; j < width; j++) {
                const REAL centred = table[i * stride + j] - mean[j];
                part[j] += share[i] * centred * centred;
            }
        for (int j = 0; j < width; j++) squares[j] += part[j];
    }
    for (int j = 0; j < width; j++) {
        const double scale = 1 / sqrt(squares[j] + n->eps);
        ((REAL *)n->mean)[from + j] = mean[j];
        ((REAL *)n->variance)[from + j] = (REAL)squares[j];
        ((REAL *)n->scale)[from + j] = (REAL)scale;
        factor[j] = (REAL)scale * ((const REAL *)n->weight)[from + j];
    }
    for (int64_t i = 0; i < n->rows; i++)
        for (int j = 0; j < width; j++) out[i * stride + j] = (table[i * stride + j] - mean[j]) * factor[j] + bias[j];
}

/* With y the table normalised before weight and bias, g the gradient and s the share of a row:
   grad of the table = weight * scale * (g - s * (sum of g) - s * y * (sum of g * y)). */
static void NAME(backward)(const Norm *n, int64_t from, int width) {
    const int64_t stride = n->width;
    const REAL *table = (const REAL *)n->table + from, *grad = (const REAL *)n->grad + from, *share = n->share;
    REAL *out = (REAL *)n->out + from, mean[COLUMNS], factor[COLUMNS], part[COLUMNS], product[COLUMNS];
    double total[COLUMNS] = {0}, products[COLUMNS] = {0};
    for (int j = 0; j < width; j++) mean[j] = ((const REAL *)n->mean)[from + j];
    for (int64_t first = 0; first < n->rows; first += ROWS) {
        for (int j = 0; j < width; j++) part[j] = product[j] = 0;
        for (int64_t i = first; i < n->rows && i < first + ROWS; i++)
            for (int j = 0; j < width; j++) {
                part[j] += grad[i * stride + j];
                product[j] += grad[i * stride + j] * (table[i * stride + j] - mean[j]);
            }
        for (int j = 0; j < width; j++) total[j] += part[j], products[j] += product[j];
    }
    for (int j = 0; j < width; j++) {
        const REAL scale = ((const REAL *)n->scale)[from + j];
        ((REAL *)n->grad_bias)[from + j] = (REAL)total[j];
        ((REAL *)n->grad_weight)[from + j] = (REAL)(products[j] * scale);
        factor[j] = scale * ((const REAL *)n->weight)[from + j];
        part[j] = (REAL)(factor[j] * total[j]);
        product[j] = (REAL)(factor[j] * products[j] * scale * scale);
    }
    for (int64_t i = 0; i < n->rows; i++)
        for (int j = 0; j < width; j++)
            out[i * stride + j] =
                factor[j] * grad[i * stride + j] - share[i] * (part[j] + (table[i * stride + j] - mean[j]) * product[j]);
}

static void NAME(columns)(void *context, int64_t block, int worker) {
    const Norm *n = context;
    const int64_t from = block * COLUMNS;
    const int width = n->width - from < COLUMNS ? (int)(n->width - from) : COLUMNS;
    (void)worker;
    if (n->grad)
        NAME(backward)(n, from, width);
    else
        NAME(forward)(n, from, width);
}
