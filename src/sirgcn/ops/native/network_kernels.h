/* The message network on blocks of edges, for one instruction set and one dtype; included after kernels.h and
   product_kernels.h, whose vectors, activations and products it takes. */

#define V NAME(vec)
#define M NAME(mask)
#define INLINE static inline __attribute__((always_inline))

/* c[m, width] = a[m, depth] b, b in packed panels. Rows up to the next multiple of TALL_ROWS are written too. */
static void NAME(times_packed)(int64_t m, int64_t width, int64_t depth, const REAL *a, int64_t a_stride, const REAL *b, REAL *c,
                               int64_t c_stride) {
    for (int64_t at = 0; at < width;) {
        const int vecs = NAME(panel)(width - at);
        const REAL *panel = b + at * depth;
        /* The panel stays in the first cache while the rows of a pass by. */
        if (vecs == 3)
            for (int64_t i = 0; i < m; i += WIDE_ROWS)
                NAME(micro)(WIDE_ROWS, 3, depth, a + i * a_stride, a_stride, 1, panel, 3 * LANES, c + i * c_stride + at, c_stride, 0);
        else
            for (int64_t i = 0; i < m; i += TALL_ROWS)
                NAME(micro)(TALL_ROWS, 2, depth, a + i * a_stride, a_stride, 1, panel, 2 * LANES, c + i * c_stride + at, c_stride, 0);
        at += vecs * LANES;
    }
}

/* c[m, width] += a^T b, a [depth, m] and b [depth, width] as they lie. */
static void NAME(add_outer)(int64_t m, int64_t width, int64_t depth, const REAL *a, int64_t a_stride, const REAL *b,
                            int64_t b_stride, REAL *c) {
    for (int64_t at = 0; at < width;) {
        const int vecs = NAME(panel)(width - at);
        if (vecs == 3)
            for (int64_t i = 0; i < m; i += WIDE_ROWS)
                NAME(micro)(WIDE_ROWS, 3, depth, a + i, 1, a_stride, b + at, b_stride, c + i * width + at, width, 1);
        else
            for (int64_t i = 0; i < m; i += TALL_ROWS)
                NAME(micro)(TALL_ROWS, 2, depth, a + i, 1, a_stride, b + at, b_stride, c + i * width + at, width, 1);
        at += vecs * LANES;
    }
}

static void NAME(network_pack)(const Network *net) {
    const REAL *weight = net->weight;
    if (net->packed) NAME(pack_panels)(net->d_out, net->out_width, net->d_in, weight, net->d_in, 1, net->packed);
    if (net->packed_back) NAME(pack_panels)(net->d_in, net->in_width, net->d_out, weight, 1, net->d_in, net->packed_back);
    if (net->plain)
        for (int64_t o = 0; o < net->d_out; o++)
            __builtin_memcpy((REAL *)net->plain + o * net->in_width, weight + o * net->d_in, net->d_in * sizeof(REAL));
    if (net->bias) __builtin_memcpy(net->shift, net->bias, net->d_out * sizeof(REAL));
}

INLINE void NAME(act_as)(int sigma, V slope, int64_t width, const REAL *from, const REAL *shift, REAL *to) {
    for (int64_t c = 0; c < width; c += LANES) {
        V f, df, z = NAME(load_real)(from + c);
        if (shift) z += NAME(load_real)(shift + c);
        NAME(activate)(sigma, z, slope, &f, &df);
        NAME(store_real)(to + c, f);
    }
}

INLINE void NAME(slope_as)(int sigma, V slope, int64_t width, const REAL *at, const REAL *shift, const REAL *grad, REAL *to) {
    for (int64_t c = 0; c < width; c += LANES) {
        V f, z = NAME(load_real)(at + c);
        if (shift) z += NAME(load_real)(shift + c);
        NAME(store_real)(to + c, NAME(times_slope)(sigma, z, slope, NAME(load_real)(grad + c), &f));
    }
}

/* One function for each activation, which the compiler then knows: rows of whole vectors,
   to = act(from (+ shift)) and to = grad * act'(at (+ shift)). */
#define ACTIVATION(constant, name, ...)                                                                                 \
    static void NAME(act_##name)(V slope, int64_t width, const REAL *from, const REAL *shift, REAL *to) {               \
        NAME(act_as)(constant, slope, width, from, shift, to);                                                          \
    }                                                                                                                   \
    static void NAME(slope_##name)(V slope, int64_t width, const REAL *at, const REAL *shift, const REAL *grad, REAL *to) { \
        NAME(slope_as)(constant, slope, width, at, shift, grad, to);                                                    \
    }
#include "activations.def"
#undef ACTIVATION

static void NAME(act_row)(int sigma, double slope, int64_t width, const REAL *from, const REAL *shift, REAL *to) {
    static void (*const of_sigma[NUM_ACTIVATIONS])(V, int64_t, const REAL *, const REAL *, REAL *) = {
#define ACTIVATION(constant, name, ...) [constant] = NAME(act_##name),
#include "activations.def"
#undef ACTIVATION
    };
    of_sigma[sigma](NAME(splat)((REAL)slope), width, from, shift, to);
}

static void NAME(slope_row)(int sigma, double slope, int64_t width, const REAL *at, const REAL *shift, const REAL *grad, REAL *to) {
    static void (*const of_sigma[NUM_ACTIVATIONS])(V, int64_t, const REAL *, const REAL *, const REAL *, REAL *) = {
#define ACTIVATION(constant, name, ...) [constant] = NAME(slope_##name),
#include "activations.def"
#undef ACTIVATION
    };
    of_sigma[sigma](NAME(splat)((REAL)slope), width, at, shift, grad, to);
}

INLINE void NAME(add_row)(int64_t width, REAL factor, const REAL *from, REAL *to) {
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) NAME(store_real)(to + c, NAME(load_real)(to + c) + factor * NAME(load_real)(from + c));
    for (; c < width; c++) to[c] += factor * from[c];
}

INLINE const REAL *NAME(key_row)(const Network *net, int64_t i) {
    return (const REAL *)net->key + index_at(net->node, net->wide_index, i) * net->key_stride;
}

/* pre = q_u + k_v (+ e), for the edge at place i of the grouped order. */
INLINE void NAME(ends_row)(const Network *net, int64_t u, int64_t i, REAL *pre) {
    const int64_t width = net->d_in;
    const REAL *q = (const REAL *)net->query + u * net->query_stride, *k = NAME(key_row)(net, i);
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) NAME(store_real)(pre + c, NAME(load_real)(q + c) + NAME(load_real)(k + c));
    for (; c < width; c++) pre[c] = q[c] + k[c];
    if (!net->term) return;
    int64_t edge = index_at(net->edge, net->wide_index, i);
    if (net->edge_type) edge = index_at(net->edge_type, net->wide_type, edge);
    NAME(add_row)(width, 1, (const REAL *)net->term + edge * width, pre);
}

/* The rows of sources are anywhere in memory: they are asked for this many edges ahead. */
#define AHEAD 6

/* pre and z = act1(pre) of the edges at places `first` to `stop`, and their targets; pre may be z. */
static void NAME(fill)(const Network *net, int64_t first, int64_t stop, REAL *pre, REAL *z, int64_t *target) {
    int64_t u = target_of(net, first);
    for (int64_t i = first; i < stop; i++, pre += net->in_stride, z += net->in_stride) {
        while (index_at(net->ptr, net->wide_index, u + 1) <= i) u++;
        *target++ = u;
        if (i + AHEAD < net->edges) {
            const char *row = (const char *)NAME(key_row)(net, i + AHEAD);
            for (int64_t byte = 0; byte < net->d_in * (int64_t)sizeof(REAL); byte += 64) __builtin_prefetch(row + byte);
        }
        NAME(ends_row)(net, u, i, pre);
        if (pre != z || net->first != IDENTITY) NAME(act_row)(net->first, net->first_slope, net->in_width, pre, 0, z);
    }
}

INLINE REAL NAME(edge_factor)(const Network *net, int64_t u, int64_t i) {
    REAL w = 1;
    if (net->target_weight) w *= ((const REAL *)net->target_weight)[u];
    if (net->source_weight) w *= ((const REAL *)net->source_weight)[index_at(net->node, net->wide_index, i)];
    return w;
}

/* Raise the maxima to a message's. The first of equal ones stays; NaN is larger than any number, and the first NaN stays. */
INLINE void NAME(raise_row)(int64_t width, const REAL *message, MASK place, REAL *top, MASK *winner) {
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        V x = NAME(load_real)(message + c), y = NAME(load_real)(top + c);
        M held, better = ~(M)(x <= y) & (M)(y == y);
        __builtin_memcpy(&held, winner + c, sizeof held);
        NAME(store_real)(top + c, NAME(pick)(better, x, y));
        held = (better & place) | (~better & held);
        __builtin_memcpy(winner + c, &held, sizeof held);
    }
    for (; c < width; c++) {
        const int better = !(message[c] <= top[c]) & (top[c] == top[c]);
        top[c] = better ? message[c] : top[c];
        winner[c] = better ? place : winner[c];
    }
}

INLINE void NAME(set_row)(int64_t width, const REAL *message, MASK place, REAL *top, MASK *winner) {
    for (int64_t c = 0; c < width; c++) {
        top[c] = message[c];
        winner[c] = place;
    }
}

/* One bit per message and channel, whether it was above 0 before act2: all that a ReLU's slope asks for. Row r of a block is bit
   r % MARKS of the words of group r / MARKS. */
#define MARKS ((int64_t)sizeof(MASK) * 8)
#define MARK_OF(r) ((MASK)((uint64_t)1 << ((r) % MARKS)))

INLINE MASK *NAME(mark_words)(const Network *net, int64_t first, int64_t r) {
    return (MASK *)net->marks + (first / net->rows * net->mark_groups + r / MARKS) * net->mark_stride;
}

INLINE void NAME(mark_row)(int64_t width, const REAL *message, const REAL *shift, int64_t r, MASK *words) {
    for (int64_t c = 0; c < width; c += LANES) {
        M word = {0}, above = (M)(NAME(load_real)(message + c) + NAME(load_real)(shift + c) > NAME(splat)(0));
        if (r % MARKS) __builtin_memcpy(&word, words + c, sizeof word);
        word |= above & MARK_OF(r);
        __builtin_memcpy(words + c, &word, sizeof word);
    }
}

/* to = grad where the message was above 0, else slope * grad. */
INLINE void NAME(marked_row)(int64_t width, const REAL *grad, int is_relu, REAL slope, int64_t r, const MASK *words, REAL *to) {
    for (int64_t c = 0; c < width; c += LANES) {
        M word;
        __builtin_memcpy(&word, words + c, sizeof word);
        const M above = (M)((word & MARK_OF(r)) != 0);
        const V g = NAME(load_real)(grad + c);
        NAME(store_real)(to + c, is_relu ? (V)(above & (M)g) : NAME(pick)(above, g, g * slope));
    }
}

static void NAME(network_forward)(const Network *net, int64_t item, const Scratch *scratch) {
    const int64_t begin = item * net->item, d = net->d_out;
    const int64_t end = begin + net->item < net->edges ? begin + net->item : net->edges;
    REAL *z = scratch->z, *messages = scratch->y;
    for (int64_t first = begin; first < end; first += net->rows) {
        const int64_t stop = first + net->rows < end ? first + net->rows : end;
        NAME(fill)(net, first, stop, z, z, scratch->target);
        NAME(times_packed)(stop - first, net->out_width, net->d_in, z, net->in_stride, net->packed, messages, net->out_stride);
        for (int64_t i = first; i < stop; i++) {
            REAL *message = messages + (i - first) * net->out_stride;
            if (first < net->marked) NAME(mark_row)(net->mark_width, message, net->shift, i - first, NAME(mark_words)(net, first, i - first));
            NAME(act_row)(net->second, net->second_slope, net->out_width, message, net->shift, message);
            const int64_t u = scratch->target[i - first], start = index_at(net->ptr, net->wide_index, u);
            const int owned = start >= begin;
            REAL *to = owned ? (REAL *)net->out + u * d : (REAL *)net->partial + item * d;
            if (!net->is_max) {
                NAME(add_row)(d, NAME(edge_factor)(net, u, i), message, to);
                continue;
            }
            MASK *winner = owned ? (MASK *)net->winner + u * d : (MASK *)net->partial_winner + item * d;
            if (i == (owned ? start : begin))
                NAME(set_row)(d, message, (MASK)(i - start), to, winner);
            else
                NAME(raise_row)(d, message, (MASK)(i - start), to, winner);
        }
    }
}

/* What an item found for a target that an earlier one began, item after item. */
static void NAME(network_merge)(const Network *net) {
    const int64_t d = net->d_out;
    for (int64_t item = 1; item < net->num_items; item++) {
        const int64_t begin = item * net->item, u = target_of(net, begin);
        if (index_at(net->ptr, net->wide_index, u) == begin) continue;
        const REAL *part = (const REAL *)net->partial + item * d;
        REAL *to = (REAL *)net->out + u * d;
        if (!net->is_max) {
            NAME(add_row)(d, 1, part, to);
            continue;
        }
        const MASK *places = (const MASK *)net->partial_winner + item * d;
        MASK *winner = (MASK *)net->winner + u * d;
        for (int64_t c = 0; c < d; c++) NAME(raise_row)(1, part + c, places[c], to + c, winner + c);
    }
}

/* The gradient of an edge's act2: grad_u * a_u b_v, or grad_u where the edge won and 0 elsewhere. */
INLINE void NAME(grad_row)(const Network *net, int64_t u, int64_t i, REAL *to) {
    const int64_t d = net->d_out;
    const REAL *grad = (const REAL *)net->grad + u * net->grad_stride;
    if (net->is_max) {
        const MASK *winner = (const MASK *)net->winner + u * d, place = (MASK)(i - index_at(net->ptr, net->wide_index, u));
        for (int64_t c = 0; c < d; c++) to[c] = winner[c] == place ? grad[c] : 0;
    } else {
        const REAL w = NAME(edge_factor)(net, u, i);
        for (int64_t c = 0; c < d; c++) to[c] = w * grad[c];
    }
}

/* The gradient of the edge's own row of the edge term, or the row of the table for later. */
INLINE void NAME(note_row)(const Network *net, int64_t u, int64_t i, int64_t at, const REAL *pre_grad) {
    net->tile_target[at] = u;
    net->tile_source[at] = index_at(net->node, net->wide_index, i);
    if (!net->grad_term) return;
    const int64_t edge = index_at(net->edge, net->wide_index, i), d = net->d_in;
    if (net->edge_type)
        net->tile_type[at] = index_at(net->edge_type, net->wide_type, edge);
    else
        __builtin_memcpy((REAL *)net->grad_term + edge * d, pre_grad, d * sizeof(REAL));
}

#define WANTS_ENDS(net) ((net)->grad_query || (net)->grad_key || (net)->grad_term)

/* All edges of the slot's block: y again where act2' needs it, dy, the slot's dW += dy^T z and db, and dpre = dy W * act1'. */
static void NAME(network_backward)(const Network *net, int64_t slot, const Scratch *scratch) {
    const int64_t first = net->bounds[slot], stop = net->bounds[slot + 1], count = stop - first, d = net->d_out;
    REAL *pre = scratch->pre, *z = scratch->z, *grads = scratch->y, *row = scratch->row;
    REAL *bias = (REAL *)net->slot_bias + slot * net->out_width, *ends = (REAL *)net->tile + slot * net->capacity * net->in_stride;
    const int is_linear = net->second == IDENTITY, is_marked = first < net->marked;
    NAME(fill)(net, first, stop, pre, z, scratch->target);
    if (!is_linear && !is_marked)
        NAME(times_packed)(count, net->out_width, net->d_in, z, net->in_stride, net->packed, grads, net->out_stride);
    for (int64_t r = 0; r < count; r++) {
        REAL *grad = grads + r * net->out_stride;
        NAME(grad_row)(net, scratch->target[r], first + r, is_linear ? grad : row);
        if (is_marked)
            NAME(marked_row)(net->mark_width, row, net->second == RELU, (REAL)net->second_slope, r, NAME(mark_words)(net, first, r), grad);
        else if (!is_linear)
            NAME(slope_row)(net->second, net->second_slope, net->out_width, grad, net->shift, row, grad);
        if (net->grad_bias) NAME(add_row)(d, 1, grad, bias);
    }
    if (net->grad_weight)
        NAME(add_outer)(d, net->in_width, count, grads, net->out_stride, z, net->in_stride,
                        (REAL *)net->slot_weight + slot * net->slot_size);
    net->tile_count[slot] = count;
    if (!WANTS_ENDS(net)) return;
    NAME(times_packed)(count, net->in_width, d, grads, net->out_stride, net->packed_back, ends, net->in_stride);
    for (int64_t r = 0; r < count; r++, ends += net->in_stride) {
        NAME(slope_row)(net->first, net->first_slope, net->in_width, pre + r * net->in_stride, 0, ends, ends);
        NAME(note_row)(net, scratch->target[r], first + r, slot * net->capacity + r, ends);
    }
}

/* The channels of one target by the edge that won them: edge number n has place place_of[n] and the channels
   order[begin[n]] to order[begin[n + 1] - 1], in rising order. Gives the number of edges, at most d_out. */
static int32_t NAME(group_winners)(const Network *net, const MASK *winner, const Scratch *scratch) {
    const int32_t d = (int32_t)net->d_out, mask = (int32_t)net->table_size - 1;
    int32_t *table = scratch->table, *number = scratch->number, *begin = scratch->begin, edges = 0;
    for (int32_t h = 0; h <= mask; h++) table[h] = -1;
    for (int32_t c = 0; c < d; c++) {
        /* Places are distinct and mostly few: without a hub, every one has an entry of its own. */
        int32_t h = (int32_t)winner[c] & mask;
        while (table[h] >= 0 && scratch->place_of[table[h]] != winner[c]) h = (h + 1) & mask;
        if (table[h] < 0) {
            scratch->place_of[edges] = (int32_t)winner[c];
            begin[edges] = 0;
            table[h] = edges++;
        }
        number[c] = table[h];
        begin[number[c]]++;
    }
    for (int32_t n = 0, sum = 0; n < edges; n++) {
        const int32_t size = begin[n];
        begin[n] = sum;
        sum += size;
    }
    /* begin[n] moves to the end of n, which is the beginning of n + 1. */
    for (int32_t c = 0; c < d; c++) scratch->order[begin[number[c]]++] = c;
    for (int32_t n = edges; n > 0; n--) begin[n] = begin[n - 1];
    begin[0] = 0;
    return edges;
}

/* For one edge and `vecs` vectors of its row: dz = sum of grad_c W_c over its channels c, and dW_c += grad_c z. */
INLINE void NAME(winner_vectors)(const int vecs, int64_t width, const REAL *grad, const int32_t *channel, int32_t count,
                                 const REAL *weight, const REAL *z, REAL *weight_grad, REAL *dz) {
    V sum[4], at[4];
    for (int v = 0; v < vecs; v++) {
        sum[v] = (V){0};
        at[v] = NAME(load_real)(z + v * LANES);
    }
    for (int32_t n = 0; n < count; n++) {
        const int64_t row = channel[n] * width;
        const REAL g = grad[channel[n]];
        for (int v = 0; v < vecs; v++) {
            REAL *to = weight_grad + row + v * LANES;
            sum[v] += g * NAME(load_real)(weight + row + v * LANES);
            NAME(store_real)(to, NAME(load_real)(to) + g * at[v]);
        }
    }
    for (int v = 0; v < vecs; v++) NAME(store_real)(dz + v * LANES, sum[v]);
}

/* As network_backward, for max without act2: of a target's edges only those that won a channel have a gradient, and that of W
   is one row per channel. The slot's block is a range of targets. */
static void NAME(network_winners)(const Network *net, int64_t slot, const Scratch *scratch) {
    const int64_t d = net->d_out, width = net->in_width;
    REAL *bias = (REAL *)net->slot_bias + slot * net->out_width, *weight_grad = (REAL *)net->slot_weight + slot * net->slot_size;
    REAL *pre = scratch->pre, *z = scratch->z, *dz = (REAL *)net->tile + slot * net->capacity * net->in_stride;
    int64_t at = slot * net->capacity;
    for (int64_t u = net->bounds[slot]; u < net->bounds[slot + 1]; u++) {
        const int64_t start = index_at(net->ptr, net->wide_index, u);
        if (start == index_at(net->ptr, net->wide_index, u + 1)) continue;
        const REAL *grad = (const REAL *)net->grad + u * net->grad_stride;
        NAME(add_row)(d, 1, grad, bias);
        const int32_t edges = NAME(group_winners)(net, (const MASK *)net->winner + u * d, scratch);
        for (int32_t n = 0; n < edges; n++, at++, dz += net->in_stride) {
            const int64_t i = start + scratch->place_of[n];
            const int32_t *channel = scratch->order + scratch->begin[n], count = scratch->begin[n + 1] - scratch->begin[n];
            NAME(ends_row)(net, u, i, pre);
            NAME(act_row)(net->first, net->first_slope, width, pre, 0, z);
            int64_t c = 0;
            for (; c + 4 * LANES <= width; c += 4 * LANES)
                NAME(winner_vectors)(4, width, grad, channel, count, (const REAL *)net->plain + c, z + c, weight_grad + c, dz + c);
            for (; c < width; c += LANES)
                NAME(winner_vectors)(1, width, grad, channel, count, (const REAL *)net->plain + c, z + c, weight_grad + c, dz + c);
            NAME(slope_row)(net->first, net->first_slope, width, pre, 0, dz, dz);
            NAME(note_row)(net, u, i, at, dz);
        }
    }
    net->tile_count[slot] = at - slot * net->capacity;
}

/* Add the channels `begin` to `end` of the tile's rows to their nodes, edge after edge: the sums do not depend on how the
   channels are shared out. */
static void NAME(network_scatter)(const Network *net, int64_t begin, int64_t end) {
    const int64_t d = net->d_in, width = end - begin;
    for (int64_t slot = 0; slot < net->slots; slot++) {
        const int64_t first = slot * net->capacity, stop = first + net->tile_count[slot];
        for (int64_t at = first; at < stop; at++) {
            const REAL *row = (const REAL *)net->tile + at * net->in_stride + begin;
            if (net->grad_key) {
                REAL *key = (REAL *)net->grad_key + begin;
                if (at + AHEAD < stop)
                    for (int64_t c = 0; c < width; c += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(key + net->tile_source[at + AHEAD] * d + c, 1);
                NAME(add_row)(width, 1, row, key + net->tile_source[at] * d);
            }
            if (net->grad_query) NAME(add_row)(width, 1, row, (REAL *)net->grad_query + net->tile_target[at] * d + begin);
            if (net->grad_term && net->edge_type)
                NAME(add_row)(width, 1, row, (REAL *)net->grad_term + net->tile_type[at] * d + begin);
        }
    }
}

static void NAME(network_sum_slots)(const Network *net) {
    for (int64_t slot = 0; slot < net->slots; slot++) {
        const REAL *weight = (const REAL *)net->slot_weight + slot * net->slot_size;
        for (int64_t o = 0; net->grad_weight && o < net->d_out; o++)
            NAME(add_row)(net->d_in, 1, weight + o * net->in_width, (REAL *)net->grad_weight + o * net->d_in);
        if (net->grad_bias) NAME(add_row)(net->d_out, 1, (const REAL *)net->slot_bias + slot * net->out_width, net->grad_bias);
    }
}

static const NetworkKernels NAME(network) = {
    LANES, NAME(network_pack), NAME(network_forward), NAME(network_merge), NAME(network_backward), NAME(network_winners),
    NAME(network_scatter), NAME(network_sum_slots),
};

#undef V
#undef M
#undef INLINE
#undef AHEAD
#undef WANTS_ENDS
#undef MARKS
#undef MARK_OF
