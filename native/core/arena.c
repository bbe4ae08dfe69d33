#include "arena.h"

#include <stdlib.h>

enum { ALIGNED = 16, FIRST = 1 << 14, MOST = 1 << 20 };

struct silo_arena_chunk {
    _Alignas(ALIGNED) struct silo_arena_chunk *after;
    unsigned char data[];
};

void *silo_arena_array(struct silo_arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    if (bytes == 0)
        bytes = ALIGNED; /* an array of 0 bytes gets memory too, because NULL would mean failure */
    if (bytes > arena->left) {
        /* Each chunk is as large as all earlier chunks together (at most MOST bytes), so that there
         * are few chunks and little memory is unused. */
        size_t room = arena->grown < FIRST ? FIRST : arena->grown;
        if (room > MOST)
            room = MOST;
        const bool is_large = bytes > room / 4;
        const size_t data = is_large ? bytes : room;
        struct silo_arena_chunk *chunk = calloc(1, sizeof *chunk + data);
        if (chunk == NULL)
            return NULL;
        arena->grown += data;
        chunk->after = arena->chunks;
        arena->chunks = chunk;
        if (is_large) /* a large array gets a chunk of its own; later arrays still come from the
                         current chunk */
            return chunk->data;
        arena->next = chunk->data;
        arena->left = data;
    }
    void *memory = arena->next;
    arena->next += bytes;
    arena->left -= bytes;
    return memory;
}

void silo_arena_free(struct silo_arena *arena) {
    for (struct silo_arena_chunk *chunk = arena->chunks, *after; chunk != NULL; chunk = after) {
        after = chunk->after;
        free(chunk);
    }
    *arena = (struct silo_arena){0};
}
