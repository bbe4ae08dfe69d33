#include "shape_source.h"

#include "errors.h"

/* Raise the error of an impossible shape, and return -1. The check first runs without memory for an
 * error text; only if it fails, these functions run it again to write the text. So the usual case
 * needs no stack for the text. */

static SILO_NOINLINE int refuse_extents(const int64_t *sizes, const int64_t *strides, int32_t ndim,
                                        int64_t unit) {
    silo_error error;
    silo_shape_check(sizes, strides, ndim, unit, &error);
    return silo_raise_as(PyExc_ValueError, &error);
}

static int check_extents(const int64_t *sizes, const int64_t *strides, int32_t ndim, int64_t unit) {
    return SILO_LIKELY(silo_shape_check(sizes, strides, ndim, unit, NULL) == 0)
               ? 0
               : refuse_extents(sizes, strides, ndim, unit);
}

static SILO_NOINLINE int refuse_tensor(const struct dl_tensor *tensor) {
    silo_error error;
    silo_dlpack_check(tensor, &error);
    return silo_raise_as(PyExc_ValueError, &error);
}

int silo_check_tensor(const struct dl_tensor *tensor) {
    return SILO_LIKELY(silo_dlpack_check(tensor, NULL) == 0) ? 0 : refuse_tensor(tensor);
}

int silo_shape_of_tensor(const struct dl_tensor *tensor, struct silo_shape *shape) {
    return SILO_LIKELY(silo_shape_of_dlpack(tensor, shape, NULL) == 0) ? 0 : refuse_tensor(tensor);
}

int silo_refuse_dimensions(long long ndim) {
    silo_error error;
    silo_shape_check_rank(ndim, &error);
    return silo_raise_as(PyExc_ValueError, &error);
}

static void compact(struct silo_shape *shape) {
    silo_shape_compact(shape->sizes, shape->ndim, shape->strides);
}

/* Reads the integers of a sequence; returns their number, or -1 with an exception set. */
static int read_integers(PyObject *sequence, int64_t values[SILO_MAX_AXES]) {
    const Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return -1;
    if (count > SILO_MAX_AXES)
        return silo_refuse_dimensions(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        values[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

int silo_shape_of_sequences(PyObject *sizes, PyObject *strides, int32_t unit,
                            struct silo_shape *shape) {
    shape->ndim = read_integers(sizes, shape->sizes);
    if (shape->ndim < 0)
        return -1;
    if (strides == NULL) {
        if (check_extents(shape->sizes, NULL, shape->ndim, shape->itemsize) != 0)
            return -1;
        compact(shape);
        return 0;
    }
    const int steps = read_integers(strides, shape->strides);
    if (steps < 0)
        return -1;
    if (steps != shape->ndim) {
        PyErr_Format(PyExc_ValueError, "the array has %d extents and %d strides", (int)shape->ndim,
                     steps);
        return -1;
    }
    if (unit == 0)
        return check_extents(shape->sizes, shape->strides, shape->ndim, shape->itemsize);
    if (check_extents(shape->sizes, shape->strides, shape->ndim, 1) != 0)
        return -1;
    for (int i = 0; i < steps; i++) {
        shape->whole &= shape->strides[i] % unit == 0;
        shape->strides[i] /= unit;
    }
    return 0;
}

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape) {
    if (buffer->ndim < 0 || buffer->ndim > SILO_MAX_AXES)
        return silo_refuse_dimensions(buffer->ndim);
    const Py_ssize_t unit = buffer->itemsize ? buffer->itemsize : 1;
    shape->whole = buffer->itemsize != 0;
    shape->ndim = buffer->ndim;
    shape->itemsize = (int32_t)buffer->itemsize;
    /* Not every exporter fills in all requested fields: ctypes arrays lack strides. */
    for (int i = 0; i < buffer->ndim; i++)
        shape->sizes[i] = buffer->shape ? buffer->shape[i] : buffer->len / unit;
    const int steps = buffer->strides ? buffer->ndim : 0;
    for (int i = 0; i < steps; i++)
        shape->strides[i] = buffer->strides[i];
    if (check_extents(shape->sizes, buffer->strides ? shape->strides : NULL, buffer->ndim,
                      buffer->strides ? 1 : buffer->itemsize) != 0)
        return -1;
    if (buffer->strides == NULL)
        compact(shape);
    for (int i = 0; i < steps; i++) {
        shape->whole &= shape->strides[i] % unit == 0;
        shape->strides[i] = buffer->itemsize ? shape->strides[i] / unit : 0;
    }
    return 0;
}
