/* Softmax over groups of edges, for one instruction set and one dtype. Included after kernels.h, because it uses the vectors and the
   exp of that file. These must be defined before: LANES, REAL, NAME. */

#define PART 256 /* a multiple of LANES: the scores of a group whose exponentials are computed at once */

static void NAME(softmax_forward)(const Softmax *s, int64_t head, int64_t first, int64_t stop, REAL *part) {
    const REAL *in = (const REAL *)s->given + head * s->given_head;
    REAL *out = (REAL *)s->out + head * s->out_head, top = -INFINITY, total = 0;
    for (int64_t i = first; i < stop; i++) {
        const REAL score = in[index_at(s->edge, s->wide, i) * s->given_step];
        top = score > top ? score : top; /* a NaN makes the total NaN */
    }
    for (int64_t at = first; at < stop; at += PART) {
        const int64_t size = stop - at < PART ? stop - at : PART;
        for (int64_t j = 0; j < size; j++) part[j] = in[index_at(s->edge, s->wide, at + j) * s->given_step] - top;
        for (int64_t j = 0; j < size; j += LANES) NAME(store_real)(part + j, NAME(exp)(NAME(load_real)(part + j)));
        for (int64_t j = 0; j < size; j++) {
            total += part[j];
            out[index_at(s->edge, s->wide, at + j) * s->out_step] = part[j];
        }
    }
    for (int64_t i = first; i < stop; i++) out[index_at(s->edge, s->wide, i) * s->out_step] /= total;
}

/* alpha_i * (g_i - sum over j of alpha_j * g_j) */
static void NAME(softmax_backward)(const Softmax *s, int64_t head, int64_t first, int64_t stop) {
    const REAL *in = (const REAL *)s->given + head * s->given_head, *grad = (const REAL *)s->grad + head * s->grad_head;
    REAL *out = (REAL *)s->out + head * s->out_head, total = 0;
    for (int64_t i = first; i < stop; i++) {
        const int64_t edge = index_at(s->edge, s->wide, i);
        total += in[edge * s->given_step] * grad[edge * s->grad_step];
    }
    for (int64_t i = first; i < stop; i++) {
        const int64_t edge = index_at(s->edge, s->wide, i);
        out[edge * s->out_step] = in[edge * s->given_step] * (grad[edge * s->grad_step] - total);
    }
}

static void NAME(softmax)(const Softmax *s, int64_t block) {
    const int64_t from = block * SOFTMAX_GROUPS, to = from + SOFTMAX_GROUPS < s->groups ? from + SOFTMAX_GROUPS : s->groups;
    REAL part[PART] = {0}; /* the vector that ends a group computes beyond it, on numbers */
    for (int64_t group = from; group < to; group++) {
        const int64_t first = index_at(s->ptr, s->wide, group), stop = index_at(s->ptr, s->wide, group + 1);
        for (int64_t head = 0; head < s->heads; head++)
            if (s->grad)
                NAME(softmax_backward)(s, head, first, stop);
            else
                NAME(softmax_forward)(s, head, first, stop, part);
    }
}

#undef PART
