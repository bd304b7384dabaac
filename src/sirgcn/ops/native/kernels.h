/* The edge loops, for one instruction set and one dtype. Before it is included:
     NAME(x)   gives x a name of its own
     LANES     elements of a vector
     STORED    the stored type, REAL the type of the arithmetic; TO_REAL / TO_STORED convert vectors if they differ
     MAX_TILE  vectors of a row that are worked on at once
   Vectors are GCC's and Clang's vector extensions. A width that is no multiple of LANES ends in a vector that overlaps the one
   before: the shared elements are computed twice, with equal results. */

typedef REAL NAME(vec) __attribute__((vector_size(LANES * sizeof(REAL))));
typedef MASK NAME(mask) __attribute__((vector_size(LANES * sizeof(REAL))));
#define V NAME(vec)
#define M NAME(mask)
#define INLINE static inline __attribute__((always_inline))

INLINE V NAME(splat)(REAL x) { return (V){0} + x; }
INLINE V NAME(pick)(M m, V a, V b) { return (V)((m & (M)a) | (~m & (M)b)); }

#if STORED_IS_BFLOAT16
typedef uint16_t NAME(half) __attribute__((vector_size(LANES * sizeof(uint16_t))));
INLINE V NAME(load)(const STORED *p) {
    NAME(half) h;
    __builtin_memcpy(&h, p, sizeof h);
    return (V)(__builtin_convertvector(h, NAME(mask)) << 16);
}
#else
INLINE V NAME(load)(const STORED *p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
#endif
INLINE V NAME(load_real)(const REAL *p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
INLINE void NAME(store_real)(REAL *p, V v) { __builtin_memcpy(p, &v, sizeof v); }

#include "vecmath.h"

/* sigma and its derivative at z; what is not used is not computed. */
INLINE void NAME(activate)(int kind, V z, V slope, V *f, V *df) {
    const V zero = NAME(splat)(0), one = NAME(splat)(1), half = NAME(splat)((REAL)0.5);
    const M positive = (M)(z > zero);
    switch (kind) {
    case IDENTITY:
        *f = z;
        *df = one;
        return;
    case RELU:
        *f = MAX_WITH_ZERO(z);
        *df = (V)(positive & (M)one);
        return;
    case LEAKY_RELU:
        *df = NAME(pick)(positive, one, slope);
        *f = z * *df;
        return;
    case ELU: {
        V e = NAME(expm1)(NAME(pick)(positive, zero, z)); /* NaN stays */
        M below = (M)(z <= zero);
        *f = NAME(pick)(below, e, z);
        *df = NAME(pick)(positive, one, e + one);
        return;
    }
    case GELU: {
        V cdf = half * (one + NAME(erf)(z * (REAL)0.70710678118654752440));
        *f = z * cdf;
        *df = cdf + z * NAME(exp)(z * z * (REAL)-0.5) * (REAL)0.39894228040143267794;
        return;
    }
    case GELU_TANH: {
        V inner = (z + z * z * z * (REAL)0.044715) * (REAL)0.79788456080286535588;
        V t = NAME(tanh)(inner);
        V slope_inner = (one + z * z * (REAL)(3 * 0.044715)) * (REAL)0.79788456080286535588;
        *f = half * z * (one + t);
        *df = half * (one + t) + half * z * (one - t * t) * slope_inner;
        return;
    }
    case SILU: {
        V s = NAME(sigmoid)(z);
        *f = z * s;
        *df = s * (one + z * (one - s));
        return;
    }
    case TANH: {
        V t = NAME(tanh)(z);
        *f = t;
        *df = one - t * t;
        return;
    }
    case SIGMOID: {
        V s = NAME(sigmoid)(z);
        *f = s;
        *df = s * (one - s);
        return;
    }
    default: { /* SOFTPLUS, the identity above 20 as in torch */
        M large = (M)(z > NAME(splat)(20));
        V e = NAME(exp)(NAME(pick)(positive, -z, z));
        V low = NAME(pick)(positive, z, zero) + NAME(log1p)(e);
        *f = NAME(pick)(large, z, low);
        *df = NAME(pick)(large, one, NAME(sigmoid)(z));
        return;
    }
    }
}

/* g * sigma'(z) */
INLINE V NAME(times_slope)(int kind, V z, V slope, V g, V *f) {
    V df;
    NAME(activate)(kind, z, slope, f, &df);
    if (kind == IDENTITY) return g;
    if (kind == RELU) return (V)((M)(z > NAME(splat)(0)) & (M)g);
    return g * df;
}

INLINE REAL NAME(weight_of)(const Job *job, int64_t edge, int64_t other) {
    REAL w = 1;
    if (job->edge_weight) w *= ((const REAL *)job->edge_weight)[edge];
    if (job->other_weight) w *= ((const REAL *)job->other_weight)[other];
    return w;
}

INLINE const STORED *NAME(term_row)(const Job *job, int64_t edge) {
    int64_t row = job->edge_type ? index_at(job->edge_type, job->wide_type, edge) : edge;
    return (const STORED *)job->term + row * job->width;
}

/* Where vector i of a tile of n that begins at channel c lies: the last ones are drawn back into the row. */
#define AT(c, i) ((c) + (i) * LANES <= job->width - LANES ? (c) + (i) * LANES : job->width - LANES)

INLINE void NAME(fetch)(const STORED *row, int n) {
    for (int byte = 0; byte < n * LANES * (int)sizeof(STORED); byte += 64) __builtin_prefetch((const char *)row + byte);
}

#define AHEAD 6

/* out[g] = self_weight[g] * sum over the group of w * sigma(self[g] + other[node] + term), for the units of one item and the
   n vectors from channel c on. A group that an earlier item began goes to the item's partial row. */
INLINE void NAME(forward_tile)(const Job *job, int64_t item, int64_t c, const int n, int kind, int plain, int slopes) {
    int64_t unit = item * job->item, end = unit + job->item;
    if (end > job->edges + job->groups) end = job->edges + job->groups;
    int64_t group = group_of_unit(job, unit);
    const V slope = NAME(splat)((REAL)job->slope);
    while (unit < end) {
        int64_t first = index_at(job->ptr, job->wide_index, group), last = index_at(job->ptr, job->wide_index, group + 1);
        int begun = unit > first + group; /* by an earlier item */
        int64_t i = begun ? unit - group - 1 : first;
        int64_t stop = end - group - 1 < last ? end - group - 1 : last;
        V self[MAX_TILE], sum[MAX_TILE], dsum[MAX_TILE];
        M count[MAX_TILE];
        const int64_t edges = stop - i;
        const STORED *row = (const STORED *)job->self + group * job->self_stride;
        for (int t = 0; t < n; t++) {
            self[t] = NAME(load)(row + AT(c, t));
            sum[t] = dsum[t] = NAME(splat)(0);
            count[t] = (M)sum[t];
        }
        for (; i < stop; i++) {
            if (i + AHEAD < job->edges) {
                NAME(fetch)((const STORED *)job->other + index_at(job->node, job->wide_index, i + AHEAD) * job->other_stride + c, n);
                if (!plain && job->term) NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + AHEAD)) + c, n);
            }
            int64_t other = index_at(job->node, job->wide_index, i);
            const STORED *met = (const STORED *)job->other + other * job->other_stride;
            const STORED *term = 0;
            REAL w = 1;
            if (!plain) {
                int64_t edge = index_at(job->edge, job->wide_index, i);
                w = NAME(weight_of)(job, edge, other);
                if (job->term) term = NAME(term_row)(job, edge);
            }
            for (int t = 0; t < n; t++) {
                V f, df, z = self[t] + NAME(load)(met + AT(c, t));
                if (!plain && term) z += NAME(load)(term + AT(c, t));
                NAME(activate)(kind, z, slope, &f, &df);
                sum[t] += plain ? f : f * w;
                if (!slopes) continue;
                if (plain) /* the slope is 1 or the same number: it is enough to count, and true is -1 */
                    count[t] -= (M)(z > NAME(splat)(0));
                else
                    dsum[t] += df * w;
            }
        }
        REAL a = job->self_weight ? ((const REAL *)job->self_weight)[group] : 1;
        int rows = slopes ? 2 : 1;
        REAL *out = begun ? (REAL *)job->partial + item * rows * job->width : (REAL *)job->out + group * job->out_stride;
        REAL *slope_out = begun ? out + job->width : (REAL *)job->slope_sum + group * job->width;
        for (int t = 0; t < n; t++) {
            NAME(store_real)(out + AT(c, t), sum[t] * a);
            if (slopes && plain) {
                V ones = __builtin_convertvector(count[t], NAME(vec)), others = (REAL)edges - ones;
                dsum[t] = kind == IDENTITY ? NAME(splat)((REAL)edges) : kind == RELU ? ones : ones + slope * others;
            }
            if (slopes) NAME(store_real)(slope_out + AT(c, t), dsum[t] * a);
        }
        unit = stop + group + 1;
        group++;
    }
}

/* out[g] = self_weight[g] * sum over the group of w * grad[node] * sigma'(self[g] + other[node] + term), with groups by source;
   the gradients of the edge term and of the edge weights are left on the way. */
INLINE void NAME(backward_tile)(const Job *job, int64_t item, int64_t c, const int n, int kind, int plain) {
    const int table = job->table_partial != 0, weighs = job->grad_weight != 0;
    /* Elements that the vector before has dealt with already are not added twice. */
    M fresh[MAX_TILE];
    for (int t = 0; !plain && t < n; t++) {
        const int64_t overlap = c + t * LANES - AT(c, t);
        MASK lanes[LANES];
        for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane < overlap ? 0 : -1;
        __builtin_memcpy(&fresh[t], lanes, sizeof lanes);
    }
    int64_t unit = item * job->item, end = unit + job->item;
    if (end > job->edges + job->groups) end = job->edges + job->groups;
    int64_t group = group_of_unit(job, unit);
    const V slope = NAME(splat)((REAL)job->slope);
    while (unit < end) {
        int64_t first = index_at(job->ptr, job->wide_index, group), last = index_at(job->ptr, job->wide_index, group + 1);
        int begun = unit > first + group;
        int64_t i = begun ? unit - group - 1 : first;
        int64_t stop = end - group - 1 < last ? end - group - 1 : last;
        V self[MAX_TILE], sum[MAX_TILE];
        const STORED *row = (const STORED *)job->self + group * job->self_stride;
        REAL b = job->self_weight ? ((const REAL *)job->self_weight)[group] : 1;
        for (int t = 0; t < n; t++) {
            self[t] = NAME(load)(row + AT(c, t));
            sum[t] = NAME(splat)(0);
        }
        for (; i < stop; i++) {
            if (i + AHEAD < job->edges) {
                int64_t next = index_at(job->node, job->wide_index, i + AHEAD);
                NAME(fetch)((const STORED *)job->other + next * job->other_stride + c, n);
                NAME(fetch)((const STORED *)job->grad + next * job->grad_stride + c, n);
                if (!plain && job->term) NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + AHEAD)) + c, n);
            }
            int64_t other = index_at(job->node, job->wide_index, i), edge = 0;
            const STORED *met = (const STORED *)job->other + other * job->other_stride;
            const STORED *grad = (const STORED *)job->grad + other * job->grad_stride;
            const STORED *term = 0;
            REAL *term_grad = 0, w = 1, a = 1;
            if (!plain) {
                edge = index_at(job->edge, job->wide_index, i);
                a = job->other_weight ? ((const REAL *)job->other_weight)[other] : 1;
                w = job->edge_weight ? ((const REAL *)job->edge_weight)[edge] * a : a;
                if (job->term) term = NAME(term_row)(job, edge);
                if (table) {
                    int64_t type = index_at(job->edge_type, job->wide_type, edge);
                    term_grad = (REAL *)job->table_partial + (item * job->types + type) * job->width;
                } else if (job->grad_term) {
                    term_grad = (REAL *)job->grad_term + edge * job->width;
                }
            }
            V dot = NAME(splat)(0);
            for (int t = 0; t < n; t++) {
                V f, z = self[t] + NAME(load)(met + AT(c, t)), g = NAME(load)(grad + AT(c, t));
                if (!plain && term) z += NAME(load)(term + AT(c, t));
                V gz = NAME(times_slope)(kind, z, slope, g, &f);
                if (!plain) gz *= w;
                sum[t] += gz;
                if (!plain && term_grad) {
                    REAL *at = term_grad + AT(c, t);
                    V add = gz * b;
                    if (table) add = NAME(load_real)(at) + (V)((M)add & fresh[t]);
                    NAME(store_real)(at, add);
                }
                if (!plain && weighs) dot += (V)((M)(g * f) & fresh[t]);
            }
            if (!plain && weighs) {
                REAL total = 0;
                for (int lane = 0; lane < LANES; lane++) total += dot[lane];
                ((REAL *)job->grad_weight)[edge] += total * a * b;
            }
        }
        REAL *out = begun ? (REAL *)job->partial + item * job->width : (REAL *)job->out + group * job->out_stride;
        for (int t = 0; t < n; t++) NAME(store_real)(out + AT(c, t), sum[t] * b);
        unit = stop + group + 1;
        group++;
    }
}

/* A row in tiles of vectors, whose number the compiler knows; vectors beyond the row's end repeat its last one. What a cheap
   sigma costs is the way to the rows, which large tiles and a loop without weights shorten; a costly one gains nothing from
   them, and the library stays small. */
#define CHEAP ((int)kind <= LEAKY_RELU && MAX_TILE > 2)
#define SIZE(n) ((n) <= MAX_TILE && (CHEAP || (n) <= 2))
#define TILES(call)                                                                                                     \
    const int64_t vectors = (job->width + LANES - 1) / LANES;                                                           \
    for (int64_t done = 0; done < vectors;) {                                                                           \
        const int64_t c = done * LANES, left = vectors - done;                                                          \
        if (SIZE(10) && (left == 9 || left == 10)) { call(10); done += 10; }                                            \
        else if (SIZE(8) && left >= 7) { call(8); done += 8; }                                                          \
        else if (SIZE(5) && left == 5) { call(5); done += 5; }                                                          \
        else if (SIZE(6) && left >= 5) { call(6); done += 6; }                                                          \
        else if (SIZE(4) && left >= 3) { call(4); done += 4; }                                                          \
        else if (SIZE(2)) { call(2); done += 2; }                                                                       \
        else { call(1); done += 1; }                                                                                    \
    }

#define FORWARD(n) NAME(forward_tile)(job, item, c, n, kind, plain, slopes)
#define BACKWARD(n) NAME(backward_tile)(job, item, c, n, kind, plain)

#define DEFINE(label, activation)                                                                                       \
    static void NAME(forward_##label)(const Job *job, int64_t item) {                                                   \
        enum { kind = activation };                                                                                     \
        const int is_plain = CHEAP && !job->term && !job->edge_weight && !job->other_weight;                            \
        if (is_plain && job->slope_sum) { enum { plain = 1, slopes = 1 }; TILES(FORWARD) }                               \
        else if (is_plain) { enum { plain = 1, slopes = 0 }; TILES(FORWARD) }                                           \
        else if (job->slope_sum) { enum { plain = 0, slopes = 1 }; TILES(FORWARD) }                                     \
        else { enum { plain = 0, slopes = 0 }; TILES(FORWARD) }                                                         \
    }                                                                                                                   \
    static void NAME(backward_##label)(const Job *job, int64_t item) {                                                  \
        enum { kind = activation };                                                                                     \
        const int is_plain = CHEAP && !job->term && !job->edge_weight && !job->other_weight;                            \
        if (is_plain) { enum { plain = 1 }; TILES(BACKWARD) }                                                           \
        else { enum { plain = 0 }; TILES(BACKWARD) }                                                                    \
    }

DEFINE(identity, IDENTITY)
DEFINE(relu, RELU)
DEFINE(leaky_relu, LEAKY_RELU)
DEFINE(elu, ELU)
DEFINE(gelu, GELU)
DEFINE(gelu_tanh, GELU_TANH)
DEFINE(silu, SILU)
DEFINE(tanh, TANH)
DEFINE(sigmoid, SIGMOID)
DEFINE(softplus, SOFTPLUS)

static const Kernel NAME(table)[2][NUM_ACTIVATIONS] = {
    {NAME(forward_identity), NAME(forward_relu), NAME(forward_leaky_relu), NAME(forward_elu), NAME(forward_gelu),
     NAME(forward_gelu_tanh), NAME(forward_silu), NAME(forward_tanh), NAME(forward_sigmoid), NAME(forward_softplus)},
    {NAME(backward_identity), NAME(backward_relu), NAME(backward_leaky_relu), NAME(backward_elu), NAME(backward_gelu),
     NAME(backward_gelu_tanh), NAME(backward_silu), NAME(backward_tanh), NAME(backward_sigmoid), NAME(backward_softplus)},
};

#undef V
#undef M
#undef INLINE
#undef AT
#undef AHEAD
#undef TILES
#undef SIZE
#undef CHEAP
#undef FORWARD
#undef BACKWARD
#undef DEFINE
