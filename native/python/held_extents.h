/* Extents of arrays and grids in the guard: from the objects of a call to the words of extents.h,
 * and back. */
#ifndef SILO_HELD_EXTENTS_H
#define SILO_HELD_EXTENTS_H

#include "extents.h"
#include "frame.h"
#include "torch_shim.h"

/* Which extents of a call its guard holds. */
struct silo_extents {
    uint8_t *parameters; /* owned: enum silo_extent, one a parameter; NULL: none is held */
    size_t room;         /* words that the extents of a call may take */
    size_t passed;       /* words of shapes and strides that are passed and not held */
    bool grid;
    bool some; /* something of an argument or of the grid is held or checked */
};

/* From a tuple of enum silo_extent, one a parameter, or an empty one or NULL. -1 with an exception
 * set; clear it either way. */
int silo_extents_init(struct silo_extents *extents, const struct silo_plan *plan, PyObject *given,
                      bool grid);
void silo_extents_clear(struct silo_extents *extents);

/* The counts of a call's holds before one of its arguments was read. */
struct silo_held {
    uint32_t buffers;
    uint32_t objects;
};

/* Add the words of argument `index`, which was read into the frame. -1 with an ArgumentError set.
 */
int silo_extents_read(const struct silo_plan *plan, const struct silo_extents *extents,
                      int32_t index, PyObject *object, struct silo_held before,
                      struct silo_frame *frame);

/* The same for a usual tensor of torch, which was read as one; false: nothing was added, and the
 * function above finds out. `object` is NULL where the call leaves the argument out. */
SILO_INLINE bool silo_extents_of_tensor(const struct silo_extents *extents, int32_t index,
                                        PyObject *object, struct silo_frame *frame) {
    const unsigned extent = extents->parameters[index];
    const int64_t *sizes, *strides;
    if (SILO_UNLIKELY(silo_code_kind(frame->key[index]) != SILO_VALUE_POINTER ||
                      Py_TYPE(object) != silo_torch.tensor))
        return false;
    const int32_t rank = silo_torch_extents(silo_torch_handle(object), &sizes, &strides);
    if (SILO_UNLIKELY(rank < 0))
        return false;
    if (extent == SILO_EXTENT_CONTIGUOUS)
        return silo_extent_contiguous(rank, sizes, strides);
    uint64_t *words = frame->extents + frame->extent_words;
    if (extent ==
        SILO_EXTENT_DYNAMIC) { /* the key has the facts about extents that are passed to the code */
        *words = silo_dynamic_word(rank, sizes, strides, silo_code_bits(frame->key[index]));
        frame->extent_words++;
        words = frame->passed;
        frame->passed += 1 + 2 * rank;
    } else {
        frame->extent_words += 1 + (uint32_t)rank * extent;
    }
    /* Copied word by word: there are few, and a call of memcpy costs more. */
    *words = (uint64_t)rank;
    for (int32_t i = 0; i < rank; i++)
        words[1 + i] = (uint64_t)sizes[i];
    if (SILO_UNLIKELY(extent == SILO_EXTENT_SHAPE))
        return true;
    for (int32_t i = 0; i < rank; i++)
        words[1 + rank + i] = (uint64_t)strides[i];
    frame->layouts[index] = words;
    return true;
}

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
