/* Extents in the guard's keys, for kernels whose code is made for one shape of an array, for one
 * shape and strides, for a dynamic layout, or for one grid.
 *
 * They are words of the key, after the words of the arguments: for the grid, if it is held, 1 and
 * its three dimensions, or 0 if the call gives none; then for each parameter that is held, in
 * order, the number of dimensions, the extents and, if they are held, the strides; for a
 * dynamic layout its one word instead; or SILO_EXTENTS_NONE for an argument that is not an array.
 * The first word of each is the number of words that follow, so two keys with equal words have
 * equal extents.
 */
#ifndef SILO_EXTENTS_H
#define SILO_EXTENTS_H

#include "dynamic_layout.h"
#include "shape.h"

enum silo_extent {
    SILO_EXTENT_FREE,    /* any shape */
    SILO_EXTENT_SHAPE,   /* one shape */
    SILO_EXTENT_LAYOUT,  /* one shape and strides */
    SILO_EXTENT_DYNAMIC, /* what code may assume of a shape and strides that are passed */
    /* Any shape, and its elements in order without gaps, or the call is refused. Without words: the
     * code takes every array that passes. */
    SILO_EXTENT_CONTIGUOUS,
};

#define SILO_EXTENTS_NONE UINT64_MAX

/* Words that the grid may take, and a parameter held so (enum silo_extent). */
#define SILO_GRID_WORDS 4
SILO_INLINE size_t silo_extent_room(unsigned extent) {
    if (extent == SILO_EXTENT_DYNAMIC)
        return 1;
    if (extent == SILO_EXTENT_FREE || extent == SILO_EXTENT_CONTIGUOUS)
        return 0;
    return 1 + (size_t)extent * SILO_MAX_AXES;
}

/* Whether the elements of an array lie in order of its rows, without gaps. */
SILO_INLINE bool silo_extent_contiguous(int32_t ndim, const int64_t *sizes,
                                        const int64_t *strides) {
    uint64_t step = 1; /* may wrap for shapes that no memory holds, which are refused elsewhere */
    bool right = true;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (sizes[i] == 0)
            return true;
        right &= sizes[i] == 1 || (uint64_t)strides[i] == step;
        step *= (uint64_t)sizes[i];
    }
    return right;
}

/* Words of a shape and strides that are passed and not held: as SILO_EXTENT_LAYOUT has them. */
#define SILO_PASSED_WORDS (1 + 2 * SILO_DYNAMIC_AXES)

/* The requirement of a kernel that is given another array. */
#define SILO_CONTIGUOUS_WORDS                                                                      \
    "a contiguous array, as the kernel declares (rows in order, no gaps; copy the view first)"

/* Write the words of the grid (NULL: the call gives none); their number. */
SILO_INLINE uint32_t silo_extent_words_of_grid(const int64_t *dims, uint64_t *words) {
    words[0] = dims != NULL;
    if (dims != NULL)
        memcpy(words + 1, dims, 3 * sizeof *words);
    return dims != NULL ? SILO_GRID_WORDS : 1;
}

/* The same of an array held as `extent` says, SILO_EXTENT_SHAPE or SILO_EXTENT_LAYOUT. */
SILO_INLINE uint32_t silo_extent_words_of_array(unsigned extent, int32_t ndim, const int64_t *sizes,
                                                const int64_t *strides, uint64_t *words) {
    const size_t count = (size_t)ndim;
    words[0] = count;
    memcpy(words + 1, sizes, count * sizeof *words);
    if (extent == SILO_EXTENT_LAYOUT)
        memcpy(words + 1 + count, strides, count * sizeof *words);
    return (uint32_t)(1 + count * (extent == SILO_EXTENT_LAYOUT ? 2 : 1));
}

/* The number of words of a parameter that is held so; the first of them are at `words`. */
SILO_INLINE size_t silo_extent_words_at(unsigned extent, const uint64_t *words) {
    if (extent == SILO_EXTENT_CONTIGUOUS)
        return 0;
    return words[0] == SILO_EXTENTS_NONE || extent == SILO_EXTENT_DYNAMIC
               ? 1
               : 1 + (size_t)words[0] * extent;
}

#endif
