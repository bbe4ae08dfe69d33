#include "held_extents.h"

#include "capsule.h"
#include "errors.h"
#include "tensor.h"

int silo_extents_init(struct silo_extents *extents, const struct silo_plan *plan, PyObject *held,
                      bool grid) {
    const Py_ssize_t count = held != NULL ? PyTuple_Size(held) : 0;
    extents->grid = extents->some = grid;
    extents->room = grid ? SILO_GRID_WORDS : 0;
    if (count == 0)
        return 0;
    if (count != plan->count) {
        PyErr_Format(PyExc_ValueError, "%U: extents of %zd parameters are held; it has %d",
                     plan->kernel, count, (int)plan->count);
        return -1;
    }
    extents->parameters = PyMem_Calloc((size_t)count, sizeof *extents->parameters);
    if (extents->parameters == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const long kind = PyLong_AsLong(PyTuple_GetItem(held, i));
        if (kind < SILO_EXTENT_FREE || kind > SILO_EXTENT_CONTIGUOUS) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "not a kind of extents: %ld", kind);
            return -1;
        }
        extents->parameters[i] = (uint8_t)kind;
        extents->some |= kind != SILO_EXTENT_FREE;
        extents->room += silo_extent_room((unsigned)kind);
        extents->passed += kind == SILO_EXTENT_DYNAMIC ? SILO_PASSED_WORDS : 0;
    }
    return 0;
}

void silo_extents_clear(struct silo_extents *extents) {
    PyMem_Free(extents->parameters);
    extents->parameters = NULL;
}

/* Reads the shape of an argument. If the call has kept the argument's descriptor, capsule or
 * buffer, the shape is read from this kept object, because the argument might return a different
 * one if asked again. */
static int shape_of(int32_t index, PyObject *object, struct silo_held position,
                    const struct silo_frame *frame, struct silo_shape *shape) {
    const struct silo_holds *holds = &frame->holds;
    if (silo_code_kind(frame->key[index]) == SILO_VALUE_DESCRIPTOR) {
        const struct silo_descriptor *descriptor = &frame->descriptors[frame->slots[index]];
        shape->ndim = (int32_t)descriptor->rank;
        shape->whole = true;
        memcpy(shape->sizes, descriptor->shape, descriptor->rank * sizeof *descriptor->shape);
        memcpy(shape->strides, descriptor->strides, descriptor->rank * sizeof *descriptor->strides);
        return 0;
    }
    if (holds->objects > position.objects)
        return silo_shape_of_capsule(holds->object[holds->objects - 1], shape);
    if (holds->buffers > position.buffers)
        return silo_shape_of_buffer(&holds->buffer[holds->buffers - 1], shape);
    const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
    return adapter ? silo_shape_read(object, adapter, shape) : -1;
}

/* Raises an error for an array that is not contiguous. A plain address has no layout and is
 * accepted. */
static int check_contiguous(const struct silo_plan *plan, int32_t index, PyObject *object,
                            struct silo_held position, const struct silo_frame *frame) {
    const unsigned kind = silo_code_kind(frame->key[index]);
    struct silo_shape shape;
    if (kind != SILO_VALUE_POINTER && kind != SILO_VALUE_DESCRIPTOR)
        return 0;
    if (shape_of(index, object, position, frame, &shape) == 0 && shape.whole &&
        silo_extent_contiguous(shape.ndim, shape.sizes, shape.strides))
        return 0;
    return silo_bad_argument(plan->kernel, plan->names[index], SILO_CONTIGUOUS_WORDS, object);
}

/* Stores a shape and strides that the kernel receives as values. The key only has facts about them
 * that the kernel's code may assume. */
static int read_passed(const struct silo_plan *plan, int32_t index, PyObject *object,
                       const struct silo_shape *shape, struct silo_frame *frame) {
    if (shape->ndim > SILO_DYNAMIC_AXES)
        return silo_bad_argument(plan->kernel, plan->names[index],
                                 "an array of up to 5 dimensions, which are passed to this kernel",
                                 object);
    const unsigned bits = silo_code_bits(frame->key[index]);
    frame->extents[frame->extent_words++] =
        silo_dynamic_word(shape->ndim, shape->sizes, shape->strides, bits);
    frame->layouts[index] = frame->passed;
    frame->passed += silo_extent_words_of_array(SILO_EXTENT_LAYOUT, shape->ndim, shape->sizes,
                                                shape->strides, frame->passed);
    return 0;
}

int silo_extents_read(const struct silo_plan *plan, const struct silo_extents *extents,
                      int32_t index, PyObject *object, struct silo_held position,
                      struct silo_frame *frame) {
    const unsigned kind = silo_code_kind(frame->key[index]);
    uint64_t *words = frame->extents + frame->extent_words;
    struct silo_shape shape;
    if (extents->parameters[index] == SILO_EXTENT_CONTIGUOUS)
        return check_contiguous(plan, index, object, position, frame);
    if (kind == SILO_VALUE_ADDRESS)
        return silo_bad_argument(plan->kernel, plan->names[index],
                                 "an array, whose shape decides the code of this kernel", object);
    if (kind != SILO_VALUE_POINTER && kind != SILO_VALUE_DESCRIPTOR) {
        words[0] = SILO_EXTENTS_NONE;
        frame->extent_words++;
        return 0;
    }
    if (shape_of(index, object, position, frame, &shape) != 0)
        return silo_bad_argument(plan->kernel, plan->names[index],
                                 "an array with a shape, which decides the code of this kernel",
                                 object);
    const unsigned extent = extents->parameters[index];
    const bool strided = extent != SILO_EXTENT_SHAPE;
    if (strided && !shape.whole)
        return silo_bad_argument(plan->kernel, plan->names[index],
                                 "an array whose strides are whole elements, for they decide the "
                                 "code of this kernel",
                                 object);
    if (extent == SILO_EXTENT_DYNAMIC)
        return read_passed(plan, index, object, &shape, frame);
    if (strided)
        frame->layouts[index] = words;
    frame->extent_words +=
        silo_extent_words_of_array(extent, shape.ndim, shape.sizes, shape.strides, words);
    return 0;
}

void silo_extents_read_grid(const int64_t *dims, struct silo_frame *frame) {
    frame->extent_words += silo_extent_words_of_grid(dims, frame->extents + frame->extent_words);
}

/* Returns the words of the first parameter's extents, which follow the grid's words. */
static const uint64_t *first_words(const struct silo_extents *extents,
                                   const struct silo_frame *frame) {
    if (!extents->grid)
        return frame->extents;
    return frame->extents + (frame->extents[0] != 0 ? SILO_GRID_WORDS : 1);
}

int silo_extents_again(const struct silo_plan *plan, const struct silo_extents *extents,
                       PyObject *const *arguments, const struct silo_frame *frame) {
    const uint64_t *words = first_words(extents, frame);
    for (int32_t i = 0; i < plan->count && extents->parameters != NULL; i++) {
        if (extents->parameters[i] == SILO_EXTENT_FREE)
            continue;
        const uint64_t *expected = words;
        words += silo_extent_words_at(extents->parameters[i], words);
        const struct silo_adapter *adapter =
            arguments[i] != NULL ? silo_adapter_of(Py_TYPE(arguments[i])) : NULL;
        const unsigned extent = extents->parameters[i];
        const bool free = extent == SILO_EXTENT_CONTIGUOUS;
        /* Descriptors and arrays read through a DLPack capsule are not read again: the call has a
         * copy of the descriptor, and it holds the capsule, while the producer might return a
         * different capsule now. */
        if ((!free && expected[0] == SILO_EXTENTS_NONE) ||
            silo_code_kind(frame->key[i]) != SILO_VALUE_POINTER ||
            (adapter != NULL && adapter->kind == SILO_ADAPT_DLPACK))
            continue;
        struct silo_shape shape;
        if (free) {
            if (adapter != NULL && silo_shape_read(arguments[i], adapter, &shape) == 0 &&
                shape.whole && silo_extent_contiguous(shape.ndim, shape.sizes, shape.strides))
                continue;
            return silo_bad_argument(plan->kernel, plan->names[i], SILO_CONTIGUOUS_WORDS,
                                     arguments[i]);
        }
        /* frame->layouts has the whole layout, although the key may have only a part of it. */
        if (frame->layouts[i] != NULL)
            expected = frame->layouts[i];
        const size_t bytes = (size_t)expected[0] * sizeof *expected;
        if (adapter != NULL && silo_shape_read(arguments[i], adapter, &shape) == 0 &&
            (uint64_t)shape.ndim == expected[0] && memcmp(shape.sizes, expected + 1, bytes) == 0 &&
            (extent == SILO_EXTENT_SHAPE ||
             memcmp(shape.strides, expected + 1 + expected[0], bytes) == 0))
            continue;
        return silo_bad_argument(plan->kernel, plan->names[i],
                                 "an array that keeps its shape during the call, which the first "
                                 "call's compiler, a hook or a config function changed",
                                 arguments[i]);
    }
    return 0;
}

static PyObject *one_fact(enum silo_extent kind, const uint64_t *words) {
    if (words[0] == SILO_EXTENTS_NONE)
        return Py_NewRef(Py_None);
    if (kind == SILO_EXTENT_DYNAMIC)
        return PyLong_FromUnsignedLongLong(words[0]);
    const int32_t ndim = (int32_t)words[0];
    PyObject *shape = silo_tensor_integers((const int64_t *)(words + 1), ndim);
    PyObject *strides = kind == SILO_EXTENT_LAYOUT
                            ? silo_tensor_integers((const int64_t *)(words + 1 + ndim), ndim)
                            : Py_NewRef(Py_None);
    PyObject *fact = shape && strides ? PyTuple_Pack(2, shape, strides) : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return fact;
}

PyObject *silo_extents_facts(const struct silo_plan *plan, const struct silo_extents *extents,
                             const struct silo_frame *frame) {
    const uint64_t *words = first_words(extents, frame);
    PyObject *facts = PyTuple_New(plan->count);
    for (int32_t i = 0; i < plan->count && facts != NULL; i++) {
        PyObject *fact = NULL;
        if (extents->parameters == NULL || extents->parameters[i] == SILO_EXTENT_FREE ||
            extents->parameters[i] == SILO_EXTENT_CONTIGUOUS) {
            fact = Py_NewRef(Py_None);
        } else {
            fact = one_fact((enum silo_extent)extents->parameters[i], words);
            words += silo_extent_words_at(extents->parameters[i], words);
        }
        if (fact == NULL || PyTuple_SetItem(facts, i, fact) != 0)
            Py_CLEAR(facts);
    }
    return facts;
}
