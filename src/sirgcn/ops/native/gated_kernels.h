/* The loops of messages with a value, for one instruction set and one dtype; included after kernels.h, whose functions and macros
   of the same NAME they use. A sum of a group that several items share goes to a part of each item; `join` adds the parts. */

#define V NAME(vec)
#define M NAME(mask)
#define INLINE static inline __attribute__((always_inline))
#define AT(t) (t < n - 1 || c + n * LANES <= job->width ? c + t * LANES : job->width - LANES)
#ifndef GATED_TILE
#define GATED_TILE 2
#endif
#define GATED_AHEAD 8

/* What one item knows of a group: whether all of its edges are there, otherwise where the part of its sums lies. */
INLINE REAL *NAME(part_of)(const Gated *g, const Span *span, int rows) {
    const Job *job = &g->job;
    if (!span->begun && span->stop == index_at(job->ptr, job->wide_index, span->group + 1)) return 0;
    return (REAL *)job->partial + (span->item * 2 + !span->begun) * rows * job->width;
}

/* The results of a group from its sums, for the n vectors from channel c on. */
INLINE void NAME(finish_forward)(const Gated *g, int64_t group, int64_t c, const int n, V sum[4][GATED_TILE]) {
    const Job *job = &g->job;
    const int slopes = job->slope_sum != 0;
    const REAL a = job->self_weight ? ((const REAL *)job->self_weight)[group] : 1;
    for (int t = 0; t < n; t++) {
        const int64_t at = AT(t), place = group * job->width + at;
        V out = sum[0][t] * a, slope = sum[1][t] * a;
        if (g->normalized) {
            const V share = 1 / (sum[2][t] + (REAL)g->epsilon);
            out = sum[0][t] * share;
            slope = (sum[1][t] - out * sum[3][t]) * share;
            if (slopes) NAME(put)(job, (REAL *)g->mean + place, out, 0);
            if (slopes) NAME(put)(job, (REAL *)g->share + place, share, 0);
        }
        if (slopes) NAME(put)(job, (REAL *)job->slope_sum + place, slope, 0);
        if (g->start) out += NAME(load)((const STORED *)g->start + group * g->start_stride + at);
        NAME(put)(job, (REAL *)job->out + group * job->out_stride + at, out, 0);
    }
}

INLINE void NAME(finish_backward)(const Gated *g, int64_t group, int64_t c, const int n, V sum[4][GATED_TILE]) {
    const Job *job = &g->job;
    const REAL b = job->self_weight ? ((const REAL *)job->self_weight)[group] : 1;
    for (int t = 0; t < n; t++) {
        NAME(put)(job, (REAL *)job->out + group * job->out_stride + AT(t), sum[0][t] * b, 0);
        NAME(put)(job, (REAL *)g->grad_value + group * g->grad_value_stride + AT(t), sum[1][t] * b, 0);
    }
}

INLINE void NAME(keep_part)(const Job *job, REAL *part, int64_t c, const int n, const int rows, const int places[4],
                            V sum[4][GATED_TILE]) {
    for (int row = 0; row < rows; row++)
        for (int t = 0; t < n; t++) NAME(store_real)(part + row * job->width + AT(t), sum[places[row]][t]);
}

/* Which of the four sums are kept, in their order. */
INLINE int NAME(kept_sums)(const Gated *g, int backward, int places[4]) {
    int rows = 0;
    for (int place = 0; place < 4; place++) {
        const int is_slope = place & 1, is_gate = place >> 1;
        if (backward ? is_gate : (is_slope && !g->job.slope_sum) || (is_gate && !g->normalized)) continue;
        places[rows++] = place;
    }
    return rows;
}

#define NODE(i) index_at(job->node, plain ? 0 : job->wide_index, i)

INLINE void NAME(gated_forward_tile)(const Gated *g, const Span *span, int64_t c, const int n, int sigma, int plain, int slopes,
                                     int normalized) {
    const Job *job = &g->job;
    const V slope = NAME(splat)((REAL)job->slope);
    const int64_t length = 2 * n * LANES;
    const REAL *met = (const REAL *)g->met + g->others * 2 * c;
    V self[GATED_TILE], sum[4][GATED_TILE];
    const STORED *row = (const STORED *)job->self + span->group * job->self_stride;
    for (int t = 0; t < n; t++) {
        self[t] = NAME(load)(row + AT(t));
        for (int place = 0; place < 4; place++) sum[place][t] = NAME(splat)(0);
    }
    for (int64_t i = span->first; i < span->stop; i++) {
        if (i + GATED_AHEAD < job->edges) {
            NAME(fetch)((const STORED *)met + NODE(i + GATED_AHEAD) * length, 2 * n);
            if (!plain && job->term)
                NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + GATED_AHEAD)) + c, n);
        }
        const REAL *other = met + NODE(i) * length;
        const STORED *term = 0;
        REAL w = 1;
        if (!plain) {
            const int64_t edge = index_at(job->edge, job->wide_index, i);
            w = job->edge_weight ? ((const REAL *)job->edge_weight)[edge] : 1;
            if (job->term) term = NAME(term_row)(job, edge);
        }
        for (int t = 0; t < n; t++) {
            V f, df, z = self[t] + NAME(load_real)(other + t * LANES);
            const V v = NAME(load_real)(other + (n + t) * LANES);
            if (!plain && term) z += NAME(load)(term + AT(t));
            NAME(activate)(sigma, z, slope, &f, &df);
            if (!plain) f *= w, df *= w;
            sum[0][t] += f * v;
            if (slopes) sum[1][t] += df * v;
            if (normalized) sum[2][t] += f;
            if (normalized && slopes) sum[3][t] += df;
        }
    }
    int places[4];
    const int rows = NAME(kept_sums)(g, 0, places);
    REAL *part = NAME(part_of)(g, span, rows);
    if (part)
        NAME(keep_part)(job, part, c, n, rows, places, sum);
    else
        NAME(finish_forward)(g, span->group, c, n, sum);
}

INLINE void NAME(gated_backward_tile)(const Gated *g, const Span *span, int64_t c, const int n, int sigma, int plain,
                                      int normalized) {
    const Job *job = &g->job;
    const int table = job->table_partial != 0, weighs = job->grad_weight != 0;
    const V slope = NAME(splat)((REAL)job->slope);
    const REAL b = job->self_weight ? ((const REAL *)job->self_weight)[span->group] : 1;
    const int64_t length = (normalized ? 3 : 2) * n * LANES;
    const REAL *met = (const REAL *)g->met + g->others * (normalized ? 3 : 2) * c;
    V self[GATED_TILE], value[GATED_TILE], sum[4][GATED_TILE];
    M fresh[GATED_TILE]; /* elements that the vector before has dealt with already are not added twice */
    for (int t = 0; t < n; t++) {
        self[t] = NAME(load)((const STORED *)job->self + span->group * job->self_stride + AT(t));
        value[t] = NAME(load)((const STORED *)g->value + span->group * g->value_stride + AT(t));
        sum[0][t] = sum[1][t] = NAME(splat)(0);
        if (plain) continue;
        const int64_t overlap = c + t * LANES - (AT(t));
        MASK lanes[LANES];
        for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane < overlap ? 0 : -1;
        __builtin_memcpy(&fresh[t], lanes, sizeof lanes);
    }
    for (int64_t i = span->first; i < span->stop; i++) {
        if (i + GATED_AHEAD < job->edges) {
            NAME(fetch)((const STORED *)met + NODE(i + GATED_AHEAD) * length, (normalized ? 3 : 2) * n);
            if (!plain && job->term)
                NAME(fetch)(NAME(term_row)(job, index_at(job->edge, job->wide_index, i + GATED_AHEAD)) + c, n);
        }
        const REAL *row = met + NODE(i) * length;
        const STORED *term = 0;
        REAL *term_grad = 0, w = 1;
        int64_t edge = 0;
        if (!plain) {
            edge = index_at(job->edge, job->wide_index, i);
            w = job->edge_weight ? ((const REAL *)job->edge_weight)[edge] : 1;
            if (job->term) term = NAME(term_row)(job, edge);
            if (table) {
                const int64_t type = index_at(job->edge_type, job->wide_type, edge);
                term_grad = (REAL *)job->table_partial + (span->item * job->types + type) * job->width;
            } else if (job->grad_term) {
                term_grad = (REAL *)job->grad_term + edge * job->width;
            }
        }
        V dot = NAME(splat)(0);
        for (int t = 0; t < n; t++) {
            V f, df, z = self[t] + NAME(load_real)(row + t * LANES);
            const V grad = NAME(load_real)(row + (n + t) * LANES);
            V of_gate = value[t] * grad;
            if (!plain && term) z += NAME(load)(term + AT(t));
            if (normalized) of_gate += NAME(load_real)(row + (2 * n + t) * LANES);
            NAME(activate)(sigma, z, slope, &f, &df);
            if (!plain && weighs) dot += (V)((M)(of_gate * f) & fresh[t]);
            if (!plain) f *= w, df *= w;
            const V of_z = df * of_gate;
            sum[0][t] += of_z;
            sum[1][t] += f * grad;
            if (plain || !term_grad) continue;
            REAL *at = term_grad + AT(t);
            const V add = of_z * b;
            if (table)
                NAME(store_real)(at, NAME(load_real)(at) + (V)((M)add & fresh[t]));
            else
                NAME(put)(job, at, add, 0);
        }
        if (!plain && weighs) {
            REAL total = 0;
            for (int lane = 0; lane < LANES; lane++) total += dot[lane];
            ((REAL *)job->grad_weight)[edge] += total * b;
        }
    }
    REAL *part = NAME(part_of)(g, span, 2);
    if (part)
        NAME(keep_part)(job, part, c, n, 2, (const int[4]){0, 1}, sum);
    else
        NAME(finish_backward)(g, span->group, c, n, sum);
}

/* Group by group, so that rows are read and written from end to end; or one tile of all groups of a range, so that the part of the
   rows that is read at random stays in the cache. */
#define TILE_OF(call, i)                                                                                   \
    {                                                                                                      \
        const int64_t from = gated_tile_at(g, LANES, tiles, i), c = from * LANES;                          \
        switch (gated_tile_at(g, LANES, tiles, (i) + 1) - from) {                                          \
            GATED_CALL(1, call) GATED_CALL(2, call) GATED_CALL(3, call) GATED_CALL(4, call)                \
        }                                                                                                  \
    }
#define GATED_CALL(n, call) case n: if ((n) <= GATED_TILE) { call(n); } break;
#define GATED_SPANS(call)                                                                                  \
    const Job *job = &g->job;                                                                              \
    const int64_t tiles = gated_tiles(g, LANES, GATED_TILE), range = g->ranges ? item % g->ranges : item;  \
    const int64_t first = g->ranges ? item / g->ranges : 0, last = g->ranges ? first + 1 : tiles;          \
    for (Span span = {.item = range, .group = group_of_unit(job, range * job->item), .stop = -1}; next_span(job, &span);) \
        for (int64_t i = first; i < last; i++) TILE_OF(call, i)

#define IS_PLAIN (!job_->term && !job_->edge_weight && !job_->wide_index)
#define FORWARD(n) NAME(gated_forward_tile)(g, &span, c, n, sigma, plain, slopes, normalized)
#define BACKWARD(n) NAME(gated_backward_tile)(g, &span, c, n, sigma, plain, normalized)
#define GATED_CASE(s, m) else if (slopes_ == s && normalized_ == m) { enum { plain = 1, slopes = s, normalized = m }; GATED_SPANS(FORWARD) }

static void NAME(gated_forward_sigmoid)(const Gated *g, int64_t item) {
    const Job *job_ = &g->job;
    const int slopes_ = job_->slope_sum != 0, normalized_ = g->normalized != 0;
    enum { sigma = SIGMOID };
    if (!IS_PLAIN) {
        enum { plain = 0 };
        const int slopes = slopes_, normalized = normalized_;
        GATED_SPANS(FORWARD)
    }
    GATED_CASE(0, 0)
    GATED_CASE(0, 1)
    GATED_CASE(1, 0)
    GATED_CASE(1, 1)
    FENCE(job_);
}

static void NAME(gated_backward_sigmoid)(const Gated *g, int64_t item) {
    const Job *job_ = &g->job;
    enum { sigma = SIGMOID };
    if (!IS_PLAIN || job_->grad_weight) {
        enum { plain = 0 };
        const int normalized = g->normalized;
        GATED_SPANS(BACKWARD)
    } else if (g->normalized) {
        enum { plain = 1, normalized = 1 };
        GATED_SPANS(BACKWARD)
    } else {
        enum { plain = 1, normalized = 0 };
        GATED_SPANS(BACKWARD)
    }
    FENCE(job_);
}

/* Any other sigma is looked up for every vector, so that the library stays small. */
static void NAME(gated_forward_any)(const Gated *g, int64_t item) {
    enum { plain = 0 };
    const int sigma = g->sigma, slopes = g->job.slope_sum != 0, normalized = g->normalized;
    GATED_SPANS(FORWARD)
    FENCE(job);
}

static void NAME(gated_backward_any)(const Gated *g, int64_t item) {
    enum { plain = 0 };
    const int sigma = g->sigma, normalized = g->normalized;
    GATED_SPANS(BACKWARD)
    FENCE(job);
}

/* The sums of a group that begins in this range and does not end there. */
#define JOIN(backward, rows_of, finish)                                                                    \
    const Job *job = &g->job;                                                                              \
    const int64_t end = (range + 1) * job->item, tiles = gated_tiles(g, LANES, GATED_TILE);                \
    if (end >= job->edges + job->groups) return;                                                           \
    const int64_t group = group_of_unit(job, end), begin = index_at(job->ptr, job->wide_index, group) + group; \
    if (begin >= end || begin < range * job->item) return;                                                 \
    const int64_t stop = index_at(job->ptr, job->wide_index, group + 1) + group + 1;                       \
    int places[4];                                                                                         \
    const int rows = NAME(kept_sums)(g, backward, places);                                                 \
    for (int64_t i = 0; i < tiles; i++)                                                                    \
        for (int64_t from = gated_tile_at(g, LANES, tiles, i); from < gated_tile_at(g, LANES, tiles, i + 1); from++) { \
            const int64_t c = from * LANES;                                                                \
            enum { n = 1 };                                                                                \
            V sum[4][GATED_TILE] = {{{0}}};                                                                \
            for (int64_t other = range; other * job->item < stop; other++) {                               \
                const REAL *part = (const REAL *)job->partial + (other * 2 + (other == range)) * rows * job->width; \
                for (int row = 0; row < rows; row++)                                                       \
                    sum[places[row]][0] += NAME(load_real)(part + row * job->width + AT(0));               \
            }                                                                                              \
            finish(g, group, c, n, sum);                                                                   \
        }                                                                                                  \
    FENCE(job);

static void NAME(gated_join_forward)(const Gated *g, int64_t range) { JOIN(0, 4, NAME(finish_forward)) }
static void NAME(gated_join_backward)(const Gated *g, int64_t range) { JOIN(1, 2, NAME(finish_backward)) }

/* met[tile][row] = what an edge reads of its far end. Forward: key, b_v * value. Backward: query, g and, of normalised sums,
   -g * mean, where g is the gradient times a_u or the share. The gradients of query and start are written on the way. */
INLINE void NAME(meet_tile)(const Gated *g, int64_t first, int64_t last, int64_t c, const int n) {
    const Job *job = &g->job;
    const int is_divided = job->grad && g->normalized;
    const int64_t length = (is_divided ? 3 : 2) * n * LANES;
    REAL *met = (REAL *)g->met + g->others * (is_divided ? 3 : 2) * c;
    for (int64_t other = first; other < last; other++) {
        const STORED *added = (const STORED *)job->other + other * job->other_stride;
        const STORED *times = job->grad ? (const STORED *)job->grad + other * job->grad_stride
                                        : (const STORED *)g->value + other * g->value_stride;
        const REAL weight = job->other_weight ? ((const REAL *)job->other_weight)[other] : 1;
        REAL *row = met + other * length;
        for (int t = 0; t < n; t++) {
            const V given = NAME(load)(times + AT(t));
            if (g->grad_query) {
                const V slope = NAME(load_real)((const REAL *)job->slope_sum + other * job->width + AT(t));
                NAME(store_real)((REAL *)g->grad_query + other * g->grad_query_stride + AT(t), slope * given);
            }
            if (g->grad_start) NAME(store_real)((REAL *)g->grad_start + other * g->grad_start_stride + AT(t), given);
            V factor = given * weight;
            if (is_divided) {
                factor *= NAME(load_real)((const REAL *)g->share + other * job->width + AT(t));
                const V mean = NAME(load_real)((const REAL *)g->mean + other * job->width + AT(t));
                NAME(store_real)(row + (2 * n + t) * LANES, -factor * mean);
            }
            NAME(store_real)(row + t * LANES, NAME(load)(added + AT(t)));
            NAME(store_real)(row + (n + t) * LANES, factor);
        }
    }
}

#define MEET(n) NAME(meet_tile)(g, block, block_end, c, n)
static void NAME(gated_meet)(const Gated *g, int64_t item) {
    const int64_t tiles = gated_tiles(g, LANES, GATED_TILE), end = (item + 1) * MEETING < g->others ? (item + 1) * MEETING : g->others;
    /* A few rows at a time, so that they are read from end to end. */
    for (int64_t block = item * MEETING; block < end; block += 8) {
        const int64_t block_end = block + 8 < end ? block + 8 : end;
        for (int64_t i = 0; i < tiles; i++) TILE_OF(MEET, i)
    }
}

static const GatedKernels NAME(gated) = {
    LANES,
    GATED_TILE,
    {{NAME(gated_forward_sigmoid), NAME(gated_forward_any)}, {NAME(gated_backward_sigmoid), NAME(gated_backward_any)}},
    {NAME(gated_join_forward), NAME(gated_join_backward)},
    NAME(gated_meet),
};

#undef V
#undef M
#undef INLINE
#undef AT
#undef GATED_AHEAD
#undef NODE
#undef TILE_OF
#undef GATED_CALL
#undef GATED_SPANS
#undef GATED_CASE
#undef IS_PLAIN
#undef FORWARD
#undef BACKWARD
#undef JOIN
#undef MEET
