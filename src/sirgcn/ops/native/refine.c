/* Exact colour refinement. Two nodes get the same new kind if their old kinds are equal, and if their neighbours and the edges from
   these have, in some order, equal kinds. Hashes find candidates, and the candidates are then compared. */
#include "refine.h"

#include "job.h"
#include "memory.h"
#include "mix.h"

/* Up to this many neighbours, an insertion sort is the fastest. */
#define FEW 24

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void sort(int64_t *x, int64_t count) {
    if (count > FEW) {
        qsort(x, count, sizeof *x, compare);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        const int64_t moved = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > moved; j--) x[j] = x[j - 1];
        x[j] = moved;
    }
}

/* The kind of a neighbour and the kind of the edge, in one number. */
static inline int64_t token(const Refinement *r, int64_t place) {
    const int64_t kind = r->kind[index_at(r->node, r->wide, place)];
    return r->edge_kind ? kind * r->edge_kinds + r->edge_kind[index_at(r->edge, r->wide, place)] : kind;
}

int refine(Refinement *r) {
    Memory memory = {0};
    int64_t size = 64;
    while (size < 2 * least(r->most, r->nodes)) size *= 2;
    /* The table's entries, one more than the kind's number; of every kind the hash, and where its tokens begin in `source`. */
    int64_t *table = take_zeros(&memory, size * sizeof *table), *begin = take(&memory, (r->most + 1) * sizeof *begin);
    uint64_t *hashes = take(&memory, r->most * sizeof *hashes);
    int result = memory.failed ? -1 : 0;
    r->num_kinds = r->num_edges = 0;
    for (int64_t u = 0; u < r->nodes && !result; u++) {
        const int64_t first = index_at(r->ptr, r->wide, u), degree = index_at(r->ptr, r->wide, u + 1) - first;
        /* Behind the tokens of all kinds so far, of nodes that came before: there is room. */
        int64_t *tokens = r->source + r->num_edges;
        uint64_t sum = 0;
        for (int64_t i = 0; i < degree; i++) {
            tokens[i] = token(r, first + i);
            sum += mixed((uint64_t)tokens[i] + GOLDEN);
        }
        sort(tokens, degree);
        const uint64_t hash = mixed(sum + mixed((uint64_t)r->kind[u]));
        int64_t slot = hash & (size - 1), found = -1;
        for (; table[slot]; slot = (slot + 1) & (size - 1)) {
            const int64_t other = table[slot] - 1;
            if (hashes[other] == hash && r->kind[r->first[other]] == r->kind[u] && begin[other + 1] - begin[other] == degree &&
                (degree == 0 || !memcmp(r->source + begin[other], tokens, degree * sizeof *tokens))) {
                found = other;
                break;
            }
        }
        if (found < 0) {
            if (r->num_kinds == r->most) {
                result = 1;
                break;
            }
            found = r->num_kinds++;
            table[slot] = found + 1;
            hashes[found] = hash;
            begin[found] = r->num_edges;
            begin[found + 1] = r->num_edges + degree;
            r->first[found] = u;
            r->count[found] = 0;
            for (int64_t i = 0; i < degree; i++) r->target[r->num_edges + i] = found;
            r->num_edges += degree;
        }
        r->count[found]++;
        r->finer[u] = found;
    }
    for (int64_t i = 0; !result && i < r->num_edges; i++) {
        r->edge_type[i] = r->edge_kind ? r->source[i] % r->edge_kinds : 0;
        r->source[i] = r->edge_kind ? r->source[i] / r->edge_kinds : r->source[i];
    }
    give_back(&memory);
    return result;
}
