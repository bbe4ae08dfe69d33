/* An arena: memory that is allocated in many pieces and freed all at once. The values read from a
 * bundle are in the bundle's arena, which is freed with the bundle. */
#ifndef SILO_ARENA_H
#define SILO_ARENA_H

#include "base.h"

struct silo_arena_chunk;

/* The memory of one arena. Initialize it with {0}. */
struct silo_arena {
    struct silo_arena_chunk *chunks; /* owned */
    unsigned char *next;
    size_t left;
    size_t grown; /* bytes of all chunks */
};

/* Returns `count` zeroed items of `size` bytes, aligned for any type; NULL if out of memory. */
void *silo_arena_array(struct silo_arena *arena, size_t count, size_t size);

void silo_arena_free(struct silo_arena *arena);

#endif
