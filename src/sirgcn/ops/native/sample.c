/* Neighbours drawn at random. Every draw depends on the seed, the target, its root and the number of the draw, and on nothing else,
   so that the result is the same for any number of threads. */
#include "sample.h"

#include "job.h"
#include "memory.h"
#include "mix.h"
#include "threads.h"

/* How many targets make one task. */
#define TARGETS 64
/* Up to this many draws, comparing with all draws before is faster than a table. */
#define FEW 48
/* How many entries ahead the table is fetched. */
#define AHEAD 12

static inline int64_t node_of(const Hop *hop, int64_t i) {
    return hop->root ? hop->frontier[i] % hop->targets : hop->frontier[i];
}

static inline int64_t tasks_of(const Hop *hop) { return (hop->count + TARGETS - 1) / TARGETS; }

static void count_task(void *context, int64_t task, int worker) {
    (void)worker;
    const Hop *hop = context;
    for (int64_t i = task * TARGETS; i < least((task + 1) * TARGETS, hop->count); i++) {
        const int64_t u = node_of(hop, i);
        const int64_t degree = index_at(hop->ptr, hop->wide_ptr, u + 1) - index_at(hop->ptr, hop->wide_ptr, u);
        const int is_all = hop->fanout < 0 || (!hop->replace && degree <= hop->fanout);
        hop->offset[i + 1] = is_all || !degree ? degree : hop->fanout;
    }
}

void count_drawn(Hop *hop, int threads) {
    run(count_task, hop, tasks_of(hop), threads);
    hop->offset[0] = 0;
    for (int64_t i = 0; i < hop->count; i++) hop->offset[i + 1] += hop->offset[i];
}

/* The number of a draw, at least 0 and below n. */
static inline int64_t below(uint64_t stream, int64_t number, int64_t n) {
    const double unit = (double)(mixed(stream + (uint64_t)(number + 1) * GOLDEN) >> 11) * 0x1p-53;
    return least((int64_t)(unit * (double)n), n - 1);
}

static int is_drawn(const int64_t *drawn, int64_t count, int64_t place) {
    for (int64_t i = 0; i < count; i++)
        if (drawn[i] == place) return 1;
    return 0;
}

static int64_t *slot_of(int64_t *table, int64_t size, int64_t place) {
    int64_t slot = mixed((uint64_t)place) & (uint64_t)(size - 1);
    while (table[slot] && table[slot] != place + 1) slot = (slot + 1) & (size - 1);
    return table + slot;
}

/* `count` different places below `degree`, by Floyd's algorithm: https://doi.org/10.1145/30401.315746 */
static int draw_different(uint64_t stream, int64_t degree, int64_t count, int64_t *drawn) {
    int64_t size = 64, *table = 0;
    while (size < 2 * count) size *= 2;
    if (count > FEW && !(table = calloc(size, sizeof *table))) return 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t last = degree - count + i;
        int64_t place = below(stream, i, last + 1);
        if (table ? *slot_of(table, size, place) != 0 : is_drawn(drawn, i, place)) place = last;
        if (table) *slot_of(table, size, place) = place + 1;
        drawn[i] = place;
    }
    free(table);
    return 1;
}

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

/* Places in the group of a target, in rising order. */
static int choose(const Hop *hop, int64_t i, int64_t degree, int64_t count, int64_t *drawn) {
    if (hop->fanout < 0 || (!hop->replace && degree <= hop->fanout)) {
        for (int64_t k = 0; k < count; k++) drawn[k] = k;
        return 1;
    }
    uint64_t stream = mixed((uint64_t)hop->seed + (uint64_t)(node_of(hop, i) + 1) * GOLDEN);
    if (hop->root) stream = mixed(stream + (uint64_t)(hop->root[hop->frontier[i] / hop->targets] + 1) * GOLDEN);
    if (hop->replace)
        for (int64_t k = 0; k < count; k++) drawn[k] = below(stream, k, degree);
    else if (!draw_different(stream, degree, count, drawn))
        return 0;
    sort(drawn, count);
    return 1;
}

static void draw_task(void *context, int64_t task, int worker) {
    (void)worker;
    Hop *hop = context;
    for (int64_t i = task * TARGETS; i < least((task + 1) * TARGETS, hop->count); i++) {
        const int64_t u = node_of(hop, i), begin = hop->offset[i], count = hop->offset[i + 1] - begin;
        const int64_t first = index_at(hop->ptr, hop->wide_ptr, u);
        const int64_t degree = index_at(hop->ptr, hop->wide_ptr, u + 1) - first;
        const int64_t tree = hop->root ? hop->frontier[i] / hop->targets * hop->sources : 0;
        int64_t *drawn = hop->place + begin;
        if (!choose(hop, i, degree, count, drawn)) {
            hop->failed = 1;
            return;
        }
        for (int64_t k = 0; k < count; k++) {
            const int64_t at = first + drawn[k];
            const int64_t source = index_at(hop->node, hop->wide, at);
            if (source < 0 || source >= hop->sources) {
                hop->failed = 2;
                return;
            }
            hop->found[begin + k] = tree + source;
            hop->owner[begin + k] = i;
            drawn[k] = hop->edge ? index_at(hop->edge, hop->wide, at) : at;
        }
    }
}

void draw(Hop *hop, int threads) { run(draw_task, hop, tasks_of(hop), threads); }

static inline int64_t home_of(const Numbering *n, int64_t key) {
    return (int64_t)(mixed((uint64_t)key) & (uint64_t)(n->slots - 1));
}

int64_t run_numbering(Numbering *n) {
    for (int64_t i = 0; i < n->count; i++) {
        if (n->mode && 2 * n->known >= n->slots) return i;
        if (i + AHEAD < n->count) __builtin_prefetch(n->table + 2 * home_of(n, n->found[i + AHEAD]), 1);
        const int64_t key = n->found[i];
        int64_t slot = home_of(n, key);
        while (n->table[2 * slot + 1] && n->table[2 * slot] != key) slot = (slot + 1) & (n->slots - 1);
        int64_t number = n->table[2 * slot + 1] - 1;
        if (n->mode && (number < 0 || n->mode == 2)) {
            if (number < 0) {
                n->table[2 * slot] = key;
                n->table[2 * slot + 1] = n->known + 1;
            }
            number = n->known++;
            n->key[number] = key;
        }
        n->number[i] = number;
    }
    return n->count;
}
