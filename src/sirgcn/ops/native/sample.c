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
    const int64_t end = least((task + 1) * TARGETS, hop->count);
    for (int64_t i = task * TARGETS; i < end; i++)
        __builtin_prefetch((const char *)hop->ptr + node_of(hop, i) * (hop->wide_ptr ? 8 : 4));
    for (int64_t i = task * TARGETS; i < end; i++) {
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

/* Fetch what a target will read, up to a few cache lines: the memory of one target waits while that of others arrives. */
static inline void fetch(const void *from, int wide, int64_t first, int64_t count) {
    const char *begin = (const char *)from + first * (wide ? 8 : 4);
    for (int64_t at = 0; at < least(count * (wide ? 8 : 4), 4 * LINE); at += LINE) __builtin_prefetch(begin + at);
}

static int gather_drawn(Hop *hop, int64_t i, int64_t first) {
    const int64_t begin = hop->offset[i], count = hop->offset[i + 1] - begin;
    const int64_t tree = hop->root ? hop->frontier[i] / hop->targets * hop->sources : 0;
    for (int64_t k = begin; k < begin + count; k++) {
        const int64_t at = first + hop->place[k], source = index_at(hop->node, hop->wide, at);
        if (source < 0 || source >= hop->sources) return 0;
        hop->found[k] = tree + source;
        hop->owner[k] = i;
        hop->place[k] = hop->edge ? index_at(hop->edge, hop->wide, at) : at;
    }
    return 1;
}

static void draw_task(void *context, int64_t task, int worker) {
    (void)worker;
    Hop *hop = context;
    const int64_t begin = task * TARGETS, count = least(TARGETS, hop->count - begin);
    int64_t first[TARGETS], degree[TARGETS];
    for (int64_t i = 0; i < count; i++) {
        const int64_t u = node_of(hop, begin + i);
        first[i] = index_at(hop->ptr, hop->wide_ptr, u);
        degree[i] = index_at(hop->ptr, hop->wide_ptr, u + 1) - first[i];
        fetch(hop->node, hop->wide, first[i], degree[i]);
        if (hop->edge) fetch(hop->edge, hop->wide, first[i], degree[i]);
    }
    for (int64_t i = begin; i < begin + count; i++) {
        const int64_t drawn = hop->offset[i + 1] - hop->offset[i];
        if (!choose(hop, i, degree[i - begin], drawn, hop->place + hop->offset[i])) hop->failed = 1;
    }
    for (int64_t i = begin; i < begin + count && !hop->failed; i++)
        if (!gather_drawn(hop, i, first[i - begin])) hop->failed = 2;
}

void draw(Hop *hop, int threads) { run(draw_task, hop, tasks_of(hop), threads); }

static inline int64_t home_of(const Numbering *n, int64_t key) {
    return (int64_t)(mixed((uint64_t)key) & (uint64_t)(n->slots - 1));
}

int64_t run_numbering(Numbering *n) {
    for (int64_t i = 0; i < n->count; i++) {
        if (n->mode && 2 * n->known >= n->slots) return i;
        if (i + AHEAD < n->count) __builtin_prefetch(n->table + home_of(n, n->found[i + AHEAD]), 1);
        const int64_t key = n->found[i];
        int64_t slot = home_of(n, key);
        while (n->table[slot] && n->key[n->table[slot] - 1] != key) slot = (slot + 1) & (n->slots - 1);
        int64_t number = (int64_t)n->table[slot] - 1;
        if (n->mode && (number < 0 || n->mode == 2)) {
            if (number < 0) n->table[slot] = (uint32_t)(n->known + 1);
            number = n->known++;
            n->key[number] = key;
        }
        n->number[i] = number;
    }
    return n->count;
}
