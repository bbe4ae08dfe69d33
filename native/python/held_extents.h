/* Converts the extents of a call's arrays and grid to words of the guard key (extents.h), and back.
 */
#ifndef SILO_HELD_EXTENTS_H
#define SILO_HELD_EXTENTS_H

#include "extents.h"
#include "frame.h"
#include "torch_shim.h"

/* Which extents of a call are part of its key. */
struct silo_extents {
    uint8_t *parameters; /* owned: an enum silo_extent for each parameter; NULL if no array's
                            extents are in the key */
    size_t room;         /* the most words that the extents of a call take */
    size_t passed; /* the most words of shapes and strides that the kernel receives as parameters;
                      the key has only facts about them */
    bool grid;
    bool some; /* whether any extent of an argument or of the grid is in the key or is checked */
};

/* Fills in `extents` from a tuple of enum silo_extent, one for each parameter. With an empty tuple
 * or NULL, no array's extents are part of the key. Returns -1 with an exception set;
 * silo_extents_clear is to be called in either case. */
int silo_extents_init(struct silo_extents *extents, const struct silo_plan *plan, PyObject *held,
                      bool grid);
void silo_extents_clear(struct silo_extents *extents);

/* The numbers of buffers and objects that a call held before one of its arguments was read. A
 * buffer or object beyond these numbers belongs to this argument. */
struct silo_held {
    uint32_t buffers;
    uint32_t objects;
};

/* Appends the words of argument `index`'s extents to frame->extents; the argument itself was read
 * into the frame before. Returns -1 with an ArgumentError set. */
int silo_extents_read(const struct silo_plan *plan, const struct silo_extents *extents,
                      int32_t index, PyObject *object, struct silo_held position,
                      struct silo_frame *frame);

/* Appends the words of an argument that is a plain torch.Tensor. Returns false if nothing was
 * appended and silo_extents_read must handle the argument. `object` is NULL if the call leaves the
 * argument out. */
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
    if (extent == SILO_EXTENT_DYNAMIC) { /* the kernel receives these extents, and the key only has
                                            facts about them */
        *words = silo_dynamic_word(rank, sizes, strides, silo_code_bits(frame->key[index]));
        frame->extent_words++;
        words = frame->passed;
        frame->passed += 1 + 2 * rank;
    } else {
        frame->extent_words += 1 + (uint32_t)rank * extent;
    }
    /* Copied word by word, because there are few words and a call to memcpy costs more. */
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

/* Appends the words of the grid, before the words of any argument; `dims` is NULL if the call gives
 * no grid. */
void silo_extents_read_grid(const int64_t *dims, struct silo_frame *frame);

/* Checks, after Python code ran during the call, that the arrays still have the extents in the key.
 * Returns -1 with an ArgumentError set. */
int silo_extents_again(const struct silo_plan *plan, const struct silo_extents *extents,
                       PyObject *const *arguments, const struct silo_frame *frame);

/* Returns a new tuple with the extents of each parameter, for Python: None, a pair (shape, strides
 * or None), or the int of silo_dynamic_word for an array whose shape and strides the kernel
 * receives as parameters. Returns NULL with an exception set. */
PyObject *silo_extents_facts(const struct silo_plan *plan, const struct silo_extents *extents,
                             const struct silo_frame *frame);

#endif
