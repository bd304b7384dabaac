/* The edge loops, for one instruction set and one dtype. Before it is included:
     NAME(x)   gives x a name of its own
     LANES     elements of a vector
     STORED    the stored type, REAL the type of the arithmetic; TO_REAL / TO_STORED convert vectors if they differ
     MAX_TILE  vectors of a row that are worked on at once, MAX_SLOPE_TILE with their derivatives: what registers hold
     STREAM    stores an aligned vector past the cache, FENCE ends an item that did
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
/* A row of a result that is too large for the cache goes past it, unless it is a partial one. */
INLINE void NAME(put)(const Job *job, REAL *p, V v, int partial) {
    if (job->streams && !partial)
        STREAM(p, v);
    else
        NAME(store_real)(p, v);
}

#include "vecmath.h"

/* sigma and its derivative at z; what is not used is not computed. */
INLINE void NAME(activate)(int sigma, V z, V slope, V *value, V *derivative) {
    const V zero = NAME(splat)(0), one = NAME(splat)(1), half = NAME(splat)((REAL)0.5);
    const M positive = (M)(z > zero);
    V f = z, df = one;
    (void)slope, (void)half;
    switch (sigma) {
#define ACTIVATION(constant, name, ...) case constant: { __VA_ARGS__; break; }
#include "activations.def"
#undef ACTIVATION
    }
    *value = f;
    *derivative = df;
}

/* g * sigma'(z) */
INLINE V NAME(times_slope)(int sigma, V z, V slope, V g, V *f) {
    V df;
    NAME(activate)(sigma, z, slope, f, &df);
    if (sigma == IDENTITY) return g;
    if (sigma == RELU) return (V)((M)(z > NAME(splat)(0)) & (M)g);
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

/* Where vector t of a tile of n that begins at channel c lies: the row's last one is drawn back into the row. */
#define AT(t) (t < n - 1 || c + n * LANES <= job->width ? c + t * LANES : job->width - LANES)

INLINE void NAME(fetch)(const STORED *row, int n) {
    for (int byte = 0; byte < n * LANES * (int)sizeof(STORED); byte += 64) __builtin_prefetch((const char *)row + byte);
}

#define AHEAD 6

/* Without weights and terms, and with int32 indices. */
#define PLAIN (CHEAP && !job->term && !job->edge_weight && !job->other_weight && !job->wide_index)
#define NODE(i) index_at(job->node, plain ? 0 : job->wide_index, i)

/* out[g] = self_weight[g] * sum over the span of w * sigma(self[g] + other[node] + term), for the n vectors from channel c on. */
INLINE void NAME(forward_tile)(const Job *job, const Span *span, int64_t c, const int n, int sigma, int plain, int slopes) {
    const V slope = NAME(splat)((REAL)job->slope);
    V self[MAX_TILE], sum[MAX_TILE], dsum[MAX_TILE];
    M count[MAX_TILE];
    const STORED *row = (const STORED *)job->self + span->group * job->self_stride;
    for (int t = 0; t < n; t++) {
        self[t] = NAME(load)(row + AT(t));
        sum[t] = dsum[t] = NAME(splat)(0);
        count[t] = (M)sum[t];
    }
    for (int64_t i = span->first; i < span->stop; i++) {
        if (i + AHEAD < job->edges) {
            NAME(fetch)((const STORED *)job->other + NODE(i + AHEAD) * job->other_stride + c, n);
            if (!plain && job->term) NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + AHEAD)) + c, n);
        }
        int64_t other = NODE(i);
        const STORED *met = (const STORED *)job->other + other * job->other_stride;
        const STORED *term = 0;
        REAL w = 1;
        if (!plain) {
            int64_t edge = index_at(job->edge, job->wide_index, i);
            w = NAME(weight_of)(job, edge, other);
            if (job->term) term = NAME(term_row)(job, edge);
        }
        for (int t = 0; t < n; t++) {
            V f, df, z = self[t] + NAME(load)(met + AT(t));
            if (!plain && term) z += NAME(load)(term + AT(t));
            NAME(activate)(sigma, z, slope, &f, &df);
            sum[t] += plain ? f : f * w;
            if (!slopes) continue;
            if (plain) /* the slope is 1 or the same number: it is enough to count, and true is -1 */
                count[t] -= (M)(z > NAME(splat)(0));
            else
                dsum[t] += df * w;
        }
    }
    REAL a = job->self_weight ? ((const REAL *)job->self_weight)[span->group] : 1;
    const int rows = slopes ? 2 : 1;
    REAL *out = (REAL *)job->out + span->group * job->out_stride, *slope_out = (REAL *)job->slope_sum + span->group * job->width;
    if (span->begun) {
        out = (REAL *)job->partial + span->item * rows * job->width;
        slope_out = out + job->width;
    }
    const REAL edges = (REAL)(span->stop - span->first);
    for (int t = 0; t < n; t++) {
        NAME(put)(job, out + AT(t), sum[t] * a, span->begun);
        if (slopes && plain) {
            V ones = __builtin_convertvector(count[t], NAME(vec)), others = edges - ones;
            dsum[t] = sigma == IDENTITY ? NAME(splat)(edges) : sigma == RELU ? ones : ones + slope * others;
        }
        if (slopes) NAME(put)(job, slope_out + AT(t), dsum[t] * a, span->begun);
    }
}

/* out[g] = self_weight[g] * sum over the span of w * grad[node] * sigma'(self[g] + other[node] + term), with groups by source;
   the gradients of the edge term and of the edge weights are left on the way. */
INLINE void NAME(backward_tile)(const Job *job, const Span *span, int64_t c, const int n, int sigma, int plain) {
    const int table = job->table_partial != 0, weighs = job->grad_weight != 0;
    /* Elements that the vector before has dealt with already are not added twice. */
    M fresh[MAX_TILE];
    for (int t = 0; !plain && t < n; t++) {
        const int64_t overlap = c + t * LANES - (AT(t));
        MASK lanes[LANES];
        for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane < overlap ? 0 : -1;
        __builtin_memcpy(&fresh[t], lanes, sizeof lanes);
    }
    const V slope = NAME(splat)((REAL)job->slope);
    V self[MAX_TILE], sum[MAX_TILE];
    const STORED *row = (const STORED *)job->self + span->group * job->self_stride;
    REAL b = job->self_weight ? ((const REAL *)job->self_weight)[span->group] : 1;
    for (int t = 0; t < n; t++) {
        self[t] = NAME(load)(row + AT(t));
        sum[t] = NAME(splat)(0);
    }
    for (int64_t i = span->first; i < span->stop; i++) {
        if (i + AHEAD < job->edges) {
            int64_t next = NODE(i + AHEAD);
            NAME(fetch)((const STORED *)job->other + next * job->other_stride + c, n);
            NAME(fetch)((const STORED *)job->grad + next * job->grad_stride + c, n);
            if (!plain && job->term) NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + AHEAD)) + c, n);
        }
        int64_t other = NODE(i), edge = 0;
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
                term_grad = (REAL *)job->table_partial + (span->item * job->types + type) * job->width;
            } else if (job->grad_term) {
                term_grad = (REAL *)job->grad_term + edge * job->width;
            }
        }
        V dot = NAME(splat)(0);
        for (int t = 0; t < n; t++) {
            V f, g = NAME(load)(grad + AT(t));
            if (plain && sigma != IDENTITY) { /* q + k > 0 where q > -k */
                M positive = (M)(NAME(load)(met + AT(t)) > -self[t]);
                sum[t] += sigma == RELU ? (V)(positive & (M)g) : NAME(pick)(positive, g, g * slope);
                continue;
            }
            V z = self[t] + NAME(load)(met + AT(t));
            if (!plain && term) z += NAME(load)(term + AT(t));
            V gz = NAME(times_slope)(sigma, z, slope, g, &f);
            if (!plain) gz *= w;
            sum[t] += gz;
            if (!plain && term_grad) {
                REAL *at = term_grad + AT(t);
                V add = gz * b;
                if (table)
                    NAME(store_real)(at, NAME(load_real)(at) + (V)((M)add & fresh[t]));
                else
                    NAME(put)(job, at, add, 0);
            }
            if (!plain && weighs) dot += (V)((M)(g * f) & fresh[t]);
        }
        if (!plain && weighs) {
            REAL total = 0;
            for (int lane = 0; lane < LANES; lane++) total += dot[lane];
            ((REAL *)job->grad_weight)[edge] += total * a * b;
        }
    }
    REAL *out = (REAL *)job->out + span->group * job->out_stride;
    if (span->begun) out = (REAL *)job->partial + span->item * job->width;
    for (int t = 0; t < n; t++) NAME(put)(job, out + AT(t), sum[t] * b, span->begun);
}

/* A row in tiles of nearly equal numbers of vectors, which the compiler knows. What a cheap sigma costs is the way to the rows,
   which large tiles and a loop without weights shorten; a costly one gains nothing from them, and the library stays small. */
#define CHEAP (SLOPE_IS_SIGN(sigma) && MAX_TILE > 2)
#define CALL(n, call) case n: if ((n) <= MAX_TILE && (CHEAP || (n) <= 2)) { call(n); } break;
#define TILES(call, most)                                                                                               \
    for (int64_t done = 0, vectors = (job->width + LANES - 1) / LANES; done < vectors;) {                               \
        const int64_t c = done * LANES, left = vectors - done, tiles = (left + (most) - 1) / (most);                    \
        const int64_t size = (left + tiles - 1) / tiles;                                                                \
        switch (size) {                                                                                                 \
            CALL(1, call) CALL(2, call) CALL(3, call) CALL(4, call) CALL(5, call)                                       \
            CALL(6, call) CALL(7, call) CALL(8, call) CALL(9, call) CALL(10, call)                                      \
        }                                                                                                               \
        done += size;                                                                                                   \
    }

#define FORWARD(n) NAME(forward_tile)(job, &span, c, n, sigma, plain, slopes)
#define BACKWARD(n) NAME(backward_tile)(job, &span, c, n, sigma, plain)
/* Group by group, so that rows are read and written from end to end. */
#define SPANS(call, most)                                                                                               \
    for (Span span = {.item = item, .group = group_of_unit(job, item * job->item), .stop = -1}; next_span(job, &span);) \
        TILES(call, CHEAP || MAX_TILE < 2 ? most : 2)

#define DEFINE(label, activation)                                                                                       \
    static void NAME(forward_##label)(const Job *job, int64_t item) {                                                   \
        enum { sigma = activation };                                                                                     \
        const int is_plain = PLAIN;                                                                                     \
        if (is_plain && job->slope_sum) { enum { plain = 1, slopes = 1 }; SPANS(FORWARD, MAX_SLOPE_TILE) }              \
        else if (is_plain) { enum { plain = 1, slopes = 0 }; SPANS(FORWARD, MAX_TILE) }                                 \
        else if (job->slope_sum) { enum { plain = 0, slopes = 1 }; SPANS(FORWARD, MAX_SLOPE_TILE) }                     \
        else { enum { plain = 0, slopes = 0 }; SPANS(FORWARD, MAX_TILE) }                                               \
        FENCE(job);                                                                                                     \
    }                                                                                                                   \
    static void NAME(backward_##label)(const Job *job, int64_t item) {                                                  \
        enum { sigma = activation };                                                                                     \
        const int is_plain = PLAIN;                                                                                     \
        if (is_plain) { enum { plain = 1 }; SPANS(BACKWARD, MAX_TILE) }                                                 \
        else { enum { plain = 0 }; SPANS(BACKWARD, MAX_TILE) }                                                          \
        FENCE(job);                                                                                                     \
    }

#define ACTIVATION(constant, name, ...) DEFINE(name, constant)
#include "activations.def"
#undef ACTIVATION

static const Kernel NAME(table)[2][NUM_ACTIVATIONS] = {
    {
#define ACTIVATION(constant, name, ...) [constant] = NAME(forward_##name),
#include "activations.def"
#undef ACTIVATION
    },
    {
#define ACTIVATION(constant, name, ...) [constant] = NAME(backward_##name),
#include "activations.def"
#undef ACTIVATION
    },
};

#undef V
#undef M
#undef INLINE
#undef AT
#undef AHEAD
#undef SPANS
#undef TILES
#undef CALL
#undef PLAIN
#undef NODE
#undef CHEAP
#undef FORWARD
#undef BACKWARD
#undef DEFINE
