/* A hash of 64 bits, the last step of SplitMix64: https://prng.di.unimi.it/splitmix64.c */
#ifndef SIRGCN_MIX_H
#define SIRGCN_MIX_H

#include <stdint.h>

#define GOLDEN 0x9e3779b97f4a7c15u

static inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
