/* Extents in the guard: of a kernel whose code is made for one shape of an array, for one shape and
 * strides, or for one grid.
 *
 * They stand in the key as words, after the words of the arguments: for the grid, where it is held,
 * 1 and its three dimensions, or 0 where the call gives none; then for each parameter that is held,
 * in order, the number of dimensions, the extents and, where they are held, the strides; or
 * SILO_EXTENTS_NONE for what is not an array. The first word of each says how many follow, so two
 * keys with equal words have equal extents. */
#ifndef SILO_HELD_EXTENTS_H
#define SILO_HELD_EXTENTS_H

#include "frame.h"

enum silo_extent {
    SILO_EXTENT_FREE,   /* any shape */
    SILO_EXTENT_SHAPE,  /* one shape */
    SILO_EXTENT_LAYOUT, /* one shape and strides */
};

#define SILO_EXTENTS_NONE UINT64_MAX

/* Which extents of a call its guard holds. */
struct silo_extents {
    uint8_t *parameters; /* owned: enum silo_extent, one a parameter; NULL: none is held */
    size_t room;         /* words that the extents of a call may take */
    bool grid;
};

/* From a tuple of enum silo_extent, one a parameter, or an empty one or NULL. -1 with an exception
 * set; clear it either way. */
int silo_extents_init(struct silo_extents *extents, const struct silo_plan *plan, PyObject *given,
                      bool grid);
void silo_extents_clear(struct silo_extents *extents);

/* What a call held before one of its arguments was read. */
struct silo_held {
    uint32_t buffers;
    uint32_t objects;
};

/* Add the words of argument `index`, which was read into the frame. -1 with an ArgumentError set.
 */
int silo_extents_read(const struct silo_plan *plan, const struct silo_extents *extents,
                      int32_t index, PyObject *object, struct silo_held before,
                      struct silo_frame *frame);

/* Add the words of the grid, before the words of any argument; NULL: the call gives none. */
void silo_extents_read_grid(const int64_t *dims, struct silo_frame *frame);

/* After Python code ran within the call: whether the arrays have the extents that the key has. -1
 * with an ArgumentError set. */
int silo_extents_again(const struct silo_plan *plan, const struct silo_extents *extents,
                       PyObject *const *arguments, const struct silo_frame *frame);

/* The extents of each parameter for Python, by position: None, or a tuple of the shape and of the
 * strides or None. A new reference to a tuple, or NULL with an exception set. */
PyObject *silo_extents_facts(const struct silo_plan *plan, const struct silo_extents *extents,
                             const struct silo_frame *frame);

#endif
