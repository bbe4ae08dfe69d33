/* Extents in the guard's keys, for kernels whose code depends on the shape of an array, its shape
 * and strides, its dynamic layout, or the grid.
 *
 * The words of extents follow the words of the arguments in a key. First the grid, if the code
 * depends on it: 1 and three dimensions, or 0 if the call gives none. Then, for each parameter on
 * whose extents the code depends: the number of dimensions, the extents, and with
 * SILO_EXTENT_LAYOUT the strides; for a dynamic layout a single word instead; for an argument that
 * is not an array SILO_EXTENTS_NONE. The first word of the grid or of a parameter determines how
 * many words follow, so keys with equal words have equal extents. */
#ifndef SILO_EXTENTS_H
#define SILO_EXTENTS_H

#include "dynamic_layout.h"
#include "shape.h"

enum silo_extent {
    SILO_EXTENT_FREE,    /* the code works for any shape: no words in the key */
    SILO_EXTENT_SHAPE,   /* code for one shape */
    SILO_EXTENT_LAYOUT,  /* code for one shape and strides */
    SILO_EXTENT_DYNAMIC, /* code for a dynamic layout: shape and strides are parameters */
    /* Code for any shape, but the array must be contiguous: otherwise the call is refused. The
     * guard compares no words for it. */
    SILO_EXTENT_CONTIGUOUS,
};

#define SILO_EXTENTS_NONE UINT64_MAX

/* The most words of the grid, and of a parameter with this kind of extents (enum silo_extent). */
#define SILO_GRID_WORDS 4
SILO_INLINE size_t silo_extent_room(unsigned extent) {
    if (extent == SILO_EXTENT_DYNAMIC)
        return 1;
    if (extent == SILO_EXTENT_FREE || extent == SILO_EXTENT_CONTIGUOUS)
        return 0;
    return 1 + (size_t)extent * SILO_MAX_AXES;
}

/* Whether an array is contiguous in row-major order. */
SILO_INLINE bool silo_extent_contiguous(int32_t ndim, const int64_t *sizes,
                                        const int64_t *strides) {
    /* `step` overflows only for shapes larger than any memory, which are refused elsewhere */
    uint64_t step = 1;
    bool right = true;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (sizes[i] == 0)
            return true;
        right &= sizes[i] == 1 || (uint64_t)strides[i] == step;
        step *= (uint64_t)sizes[i];
    }
    return right;
}

/* The number of words of a shape and strides that are passed to the code as parameters, in the
 * order of SILO_EXTENT_LAYOUT. These words are not part of the key. */
#define SILO_PASSED_WORDS (1 + 2 * SILO_DYNAMIC_AXES)

/* The requirement in the error message for an array that is not contiguous. */
#define SILO_CONTIGUOUS_WORDS                                                                      \
    "a contiguous array, as the kernel declares (rows in order, no gaps; copy the view first)"

/* Writes the words of the grid (NULL if the call gives none) and returns their number. */
SILO_INLINE uint32_t silo_extent_words_of_grid(const int64_t *dims, uint64_t *words) {
    words[0] = dims != NULL;
    if (dims != NULL)
        memcpy(words + 1, dims, 3 * sizeof *words);
    return dims != NULL ? SILO_GRID_WORDS : 1;
}

/* Writes the words of an array for SILO_EXTENT_SHAPE or SILO_EXTENT_LAYOUT and returns their
 * number. */
SILO_INLINE uint32_t silo_extent_words_of_array(unsigned extent, int32_t ndim, const int64_t *sizes,
                                                const int64_t *strides, uint64_t *words) {
    const size_t count = (size_t)ndim;
    words[0] = count;
    memcpy(words + 1, sizes, count * sizeof *words);
    if (extent == SILO_EXTENT_LAYOUT)
        memcpy(words + 1 + count, strides, count * sizeof *words);
    return (uint32_t)(1 + count * (extent == SILO_EXTENT_LAYOUT ? 2 : 1));
}

/* Returns the number of words at `words` that belong to a parameter with this kind of extents. */
SILO_INLINE size_t silo_extent_words_at(unsigned extent, const uint64_t *words) {
    if (extent == SILO_EXTENT_CONTIGUOUS)
        return 0;
    return words[0] == SILO_EXTENTS_NONE || extent == SILO_EXTENT_DYNAMIC
               ? 1
               : 1 + (size_t)words[0] * extent;
}

#endif
