/* Matrix products on blocks, for one instruction set and one dtype; included after kernels.h, whose vectors it takes. Before it
   is included: WIDE_ROWS, TALL_ROWS (below), LANES, REAL, NAME. */

#define V NAME(vec)
#define INLINE static inline __attribute__((always_inline))

/* c[i, :] (+)= sum over k of a[i * row + k * step] * b[k, :], for `rows` rows and `vecs` vectors. The sums stay in registers:
   of 16, twelve hold 6 x 2 or 4 x 3 of them, and an instruction that multiplies and adds waits for none of the others. */
INLINE void NAME(micro)(const int rows, const int vecs, int64_t depth, const REAL *a, int64_t row, int64_t step, const REAL *b,
                        int64_t b_stride, REAL *c, int64_t c_stride, int add) {
    V sum[TALL_ROWS][3];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) sum[i][v] = add ? NAME(load_real)(c + i * c_stride + v * LANES) : (V){0};
    for (int64_t k = 0; k < depth; k++, a += step, b += b_stride) {
        V right[3];
        for (int v = 0; v < vecs; v++) right[v] = NAME(load_real)(b + v * LANES);
        for (int i = 0; i < rows; i++) {
            const REAL left = a[i * row];
            for (int v = 0; v < vecs; v++) sum[i][v] += left * right[v];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) NAME(store_real)(c + i * c_stride + v * LANES, sum[i][v]);
}

/* A width in panels of two vectors, the first of three where the number of vectors is odd. */
INLINE int NAME(panel)(int64_t left) { return left / LANES % 2 ? 3 : 2; }

/* Panels of a matrix whose entry (j, k) lies at from[j * row + k * step], 0 beyond `width`: entry (at + j, k) of the panel that
   begins at row `at` goes to to[at * depth + k * size + j]. */
static void NAME(pack_panels)(int64_t width, int64_t padded, int64_t depth, const REAL *from, int64_t row, int64_t step, REAL *to) {
    for (int64_t at = 0; at < padded;) {
        const int vecs = NAME(panel)(padded - at);
        const int64_t size = vecs * LANES;
        REAL *panel = to + at * depth;
        if (row == 1 && at + size <= width)
            for (int64_t k = 0; k < depth; k++, panel += size)
                for (int v = 0; v < vecs; v++) NAME(store_real)(panel + v * LANES, NAME(load_real)(from + k * step + at + v * LANES));
        else
            for (int64_t k = 0; k < depth; k++, panel += size)
                for (int64_t j = 0; j < size; j++) panel[j] = at + j < width ? from[(at + j) * row + k * step] : 0;
        at += size;
    }
}

/* The kernel of a panel. */
INLINE void NAME(tile)(int vecs, int64_t depth, const REAL *a, int64_t row, int64_t step, const REAL *b, REAL *c, int64_t c_stride, int add) {
    if (vecs == 3)
        NAME(micro)(WIDE_ROWS, 3, depth, a, row, step, b, 3 * LANES, c, c_stride, add);
    else
        NAME(micro)(TALL_ROWS, 2, depth, a, row, step, b, 2 * LANES, c, c_stride, add);
}

/* The same for a tile that has fewer rows or columns, by way of copies with zeros behind them: the sums are added in the same
   order as in a whole tile. */
static __attribute__((noinline)) void NAME(corner)(int vecs, int64_t rows, int64_t columns, int64_t depth, const REAL *a, int64_t row,
                                                   int64_t step, const REAL *b, REAL *c, int64_t c_stride, int add) {
    const int high = vecs == 3 ? WIDE_ROWS : TALL_ROWS, size = vecs * LANES;
    REAL rest[TALL_ROWS * PRODUCT_DEPTH], made[TALL_ROWS * 3 * LANES];
    for (int r = 0; add && r < high; r++)
        for (int j = 0; j < size; j++) made[r * size + j] = r < rows && j < columns ? c[r * c_stride + j] : 0;
    if (rows < high) {
        for (int64_t k = 0; k < depth; k++)
            for (int r = 0; r < high; r++) rest[k * high + r] = r < rows ? a[r * row + k * step] : 0;
        NAME(tile)(vecs, depth, rest, 1, high, b, made, size, add);
    } else
        NAME(tile)(vecs, depth, a, row, step, b, made, size, add);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) c[r * c_stride + j] = made[r * size + j];
}

/* c (+)= a b, b in packed panels. */
static void NAME(tiles)(int64_t rows, int64_t width, int64_t depth, const REAL *a, int64_t row, int64_t step, const REAL *b, REAL *c,
                        int64_t c_stride, int add) {
    const int64_t padded = padded_width(width, LANES);
    for (int64_t at = 0; at < padded;) {
        const int vecs = NAME(panel)(padded - at), high = vecs == 3 ? WIDE_ROWS : TALL_ROWS;
        const int64_t size = vecs * LANES, columns = at + size <= width ? size : width - at;
        const REAL *panel = b + at * depth;
        int64_t i = 0;
        if (columns == size)
            for (; i + high <= rows; i += high) {
                /* A new c is nowhere near: its lines are asked for a tile ahead. */
                for (int r = 0; r < high && i + high + r < rows; r++) __builtin_prefetch(c + (i + high + r) * c_stride + at + size - 1, 1);
                NAME(tile)(vecs, depth, a + i * row, row, step, panel, c + i * c_stride + at, c_stride, add);
            }
        for (; i < rows; i += high)
            NAME(corner)(vecs, rows - i < high ? rows - i : high, columns, depth, a + i * row, row, step, panel, c + i * c_stride + at,
                         c_stride, add);
        at += size;
    }
}

static void NAME(product_pack)(const Product *p) {
    const int64_t padded = padded_width(p->n, LANES);
    for (int64_t k = 0; k < p->depth; k += PRODUCT_DEPTH) {
        const int64_t depth = p->depth - k < PRODUCT_DEPTH ? p->depth - k : PRODUCT_DEPTH;
        NAME(pack_panels)(p->n, padded, depth, (const REAL *)p->b + k * p->b_row, p->b_step, p->b_row, (REAL *)p->packed + k * padded);
    }
}

/* A block of rows of c, with b packed whole. */
static void NAME(product_rows)(const Product *p, int64_t block) {
    const int64_t first = block * PRODUCT_ROWS, rows = p->m - first < PRODUCT_ROWS ? p->m - first : PRODUCT_ROWS, n = p->n;
    const REAL *a = (const REAL *)p->a + first * p->a_row;
    REAL *c = (REAL *)p->c + first * n;
    for (int64_t i = 0; p->bias && i < rows; i++) __builtin_memcpy(c + i * n, p->bias, n * sizeof(REAL));
    for (int64_t k = 0; k < p->depth; k += PRODUCT_DEPTH) {
        const int64_t depth = p->depth - k < PRODUCT_DEPTH ? p->depth - k : PRODUCT_DEPTH;
        NAME(tiles)(rows, n, depth, a + k * p->a_step, p->a_row, p->a_step, (const REAL *)p->packed + k * padded_width(n, LANES), c, n,
                    k > 0 || p->bias);
    }
}

/* A block of columns of one slot of c, the part of the sum that the slot's range of the depth makes; `packed` is scratch. */
static void NAME(product_slot)(const Product *p, int64_t slot, int64_t block, void *packed) {
    const int64_t from = block * PRODUCT_COLUMNS, width = p->n - from < PRODUCT_COLUMNS ? p->n - from : PRODUCT_COLUMNS;
    const int64_t begin = slot * p->slot_depth, end = begin + p->slot_depth < p->depth ? begin + p->slot_depth : p->depth;
    REAL *c = (slot ? (REAL *)p->slots + (slot - 1) * p->m * p->n : (REAL *)p->c) + from;
    for (int64_t k = begin; k < end; k += PRODUCT_SLOT_DEPTH) {
        const int64_t depth = end - k < PRODUCT_SLOT_DEPTH ? end - k : PRODUCT_SLOT_DEPTH;
        /* Read down its columns by the kernels, so that the processor does not see what comes next. */
        for (int64_t j = 0; j < depth && p->a_row == 1; j++)
            for (int64_t i = 0; i < p->m; i += 64 / (int64_t)sizeof(REAL)) __builtin_prefetch((const REAL *)p->a + (k + j) * p->a_step + i);
        NAME(pack_panels)(width, padded_width(width, LANES), depth, (const REAL *)p->b + k * p->b_row + from * p->b_step, p->b_step,
                          p->b_row, packed);
        NAME(tiles)(p->m, width, depth, (const REAL *)p->a + k * p->a_step, p->a_row, p->a_step, packed, c, p->n, k > begin);
    }
}

static void NAME(product_sum)(const Product *p) {
    REAL *c = p->c;
    for (int64_t slot = 1; slot < p->num_slots; slot++) {
        const REAL *part = (const REAL *)p->slots + (slot - 1) * p->m * p->n;
        for (int64_t i = 0; i < p->m * p->n; i++) c[i] += part[i];
    }
    for (int64_t i = 0; p->bias && i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) c[i * p->n + j] += ((const REAL *)p->bias)[j];
}

static const ProductKernels NAME(product) = {
    LANES, NAME(product_pack), NAME(product_rows), NAME(product_slot), NAME(product_sum),
};

#undef V
#undef INLINE
