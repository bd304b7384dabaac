/* Pieces of memory that are freed together. */
#ifndef SIRGCN_MEMORY_H
#define SIRGCN_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t rounded_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

typedef struct {
    void *pieces[32];
    int count, failed;
} Memory;

/* A piece in whole cache lines; null if memory is short. */
static inline void *take(Memory *memory, int64_t bytes) {
    void *piece = aligned_alloc(LINE, rounded_up(most(bytes, 1), LINE));
    if (!piece) memory->failed = 1;
    if (piece) memory->pieces[memory->count++] = piece;
    return piece;
}

static inline void *take_zeros(Memory *memory, int64_t bytes) {
    void *piece = take(memory, bytes);
    return piece ? memset(piece, 0, bytes) : 0;
}

static inline void give_back(Memory *memory) {
    while (memory->count) free(memory->pieces[--memory->count]);
}

#endif
