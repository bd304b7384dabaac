/* A block of a matrix product, for one instruction set and one dtype. Included after kernels.h, because it uses the vectors of that
   file. These must be defined before: WIDE_ROWS, TALL_ROWS (see below), LANES, REAL, NAME. */

#define V NAME(vec)
#define INLINE static inline __attribute__((always_inline))

/* c[i, :] (+)= sum over k of a[i * row + k * step] * b[k, :], for `rows` rows and `vecs` vectors. The sums stay in registers: with 16
   registers, twelve hold 6 x 2 or 4 x 3 sums, enough that no multiply-add has to wait for an earlier one. */
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

/* The vectors of the next panel: a panel has two vectors, but the first panel has three where the number of vectors is odd. */
INLINE int NAME(panel)(int64_t left) { return left / LANES % 2 ? 3 : 2; }

/* Copies a matrix into panels, with zeros from `width` to `padded`. Entry (j, k) of the matrix lies at from[j * row + k * step]. Entry
   (at + j, k) of the panel that begins at row `at` goes to to[at * depth + k * size + j]. */
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

#undef V
#undef INLINE
