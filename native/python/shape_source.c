#include "shape_source.h"

/* Fill strides of a compact row-major array, whose extents were checked. */
static void compact(struct silo_shape *shape) {
    int64_t step = 1;
    for (int32_t i = shape->ndim - 1; i >= 0; i--) {
        shape->strides[i] = step;
        if (__builtin_mul_overflow(step, shape->sizes[i], &step))
            step = 0; /* there are no elements */
    }
}

/* Whether there may be such an array. Strides count `unit` bytes; NULL: compact. -1 with an
 * exception set. */
static int check_extents(const int64_t *sizes, const int64_t *strides, int32_t ndim, int64_t unit) {
    int64_t elements = 1, reach = 0;
    bool empty = false, overflow = false;
    for (int32_t i = 0; i < ndim; i++) {
        const int64_t size = sizes[i];
        if (SILO_UNLIKELY(size < 0)) {
            PyErr_Format(PyExc_ValueError, "its extent %d is %lld, which is negative", (int)i,
                         (long long)size);
            return -1;
        }
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(elements, size, &elements);
        if (strides != NULL && size > 1) {
            int64_t step;
            if (strides[i] == INT64_MIN)
                overflow = true;
            else
                overflow |= __builtin_mul_overflow(
                                size - 1, strides[i] < 0 ? -strides[i] : strides[i], &step) ||
                            __builtin_add_overflow(reach, step, &reach);
        }
    }
    if (strides == NULL)
        reach = elements;
    overflow |= __builtin_mul_overflow(reach, unit != 0 ? unit : 1, &reach);
    if (SILO_UNLIKELY(overflow && !empty)) {
        PyErr_SetString(PyExc_ValueError, "its extents and strides reach beyond any memory");
        return -1;
    }
    return 0;
}

/* The same of what was read. */
static int check_shape(const struct silo_shape *shape) {
    return check_extents(shape->sizes, shape->strides, shape->ndim, shape->itemsize);
}

int silo_refuse_dimensions(long long ndim) {
    PyErr_Format(PyExc_ValueError, "the array has %lld dimensions; there are 0 to 32", ndim);
    return -1;
}

int silo_dlpack_check(const struct dl_tensor *tensor) {
    const int32_t ndim = tensor->ndim;
    if (SILO_UNLIKELY(ndim < 0 || ndim > 32))
        return silo_refuse_dimensions(ndim);
    if (SILO_UNLIKELY(ndim > 0 && tensor->shape == NULL)) {
        PyErr_Format(PyExc_ValueError, "the array has %d dimensions and no shape", (int)ndim);
        return -1;
    }
    uint64_t end;
    if (SILO_UNLIKELY(
            __builtin_add_overflow((uint64_t)(uintptr_t)tensor->data, tensor->byte_offset, &end))) {
        PyErr_Format(PyExc_ValueError, "its byte offset %llu leads beyond any memory",
                     (unsigned long long)tensor->byte_offset);
        return -1;
    }
    return check_extents(tensor->shape, tensor->strides, ndim,
                         (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8);
}

int silo_shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape) {
    if (silo_dlpack_check(tensor) != 0)
        return -1;
    shape->ndim = tensor->ndim;
    shape->itemsize = tensor->dtype.bits * tensor->dtype.lanes / 8;
    for (int32_t i = 0; i < tensor->ndim; i++)
        shape->sizes[i] = tensor->shape[i];
    if (tensor->strides == NULL)
        compact(shape);
    for (int32_t i = 0; tensor->strides != NULL && i < tensor->ndim; i++)
        shape->strides[i] = tensor->strides[i];
    return 0;
}

/* Integers of a sequence; their number, or -1 with an exception set. */
static int read_integers(PyObject *sequence, int64_t values[32]) {
    const Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return -1;
    if (count > 32)
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
        return check_shape(shape);
    if (check_extents(shape->sizes, shape->strides, shape->ndim, 1) != 0)
        return -1;
    for (int i = 0; i < steps; i++) {
        shape->whole &= shape->strides[i] % unit == 0;
        shape->strides[i] /= unit;
    }
    return 0;
}

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape) {
    if (buffer->ndim < 0 || buffer->ndim > 32)
        return silo_refuse_dimensions(buffer->ndim);
    const Py_ssize_t unit = buffer->itemsize ? buffer->itemsize : 1;
    shape->whole = buffer->itemsize != 0;
    shape->ndim = buffer->ndim;
    shape->itemsize = (int32_t)buffer->itemsize;
    /* Not every exporter gives what was asked for: ctypes arrays have no strides. */
    for (int i = 0; i < buffer->ndim; i++)
        shape->sizes[i] = buffer->shape ? buffer->shape[i] : buffer->len / unit;
    if (check_extents(shape->sizes, buffer->strides, buffer->ndim,
                      buffer->strides ? 1 : buffer->itemsize) != 0)
        return -1;
    if (buffer->strides == NULL)
        compact(shape);
    for (int i = 0; buffer->strides != NULL && i < buffer->ndim; i++) {
        shape->whole &= buffer->strides[i] % unit == 0;
        shape->strides[i] = buffer->itemsize ? buffer->strides[i] / unit : 0;
    }
    return 0;
}
