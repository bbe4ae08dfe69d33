#include "arguments.h"

#include "stack.h"

/* ---- shapes ---- */

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

static int refuse_dimensions(long long ndim) {
    PyErr_Format(PyExc_ValueError, "the array has %lld dimensions; there are 0 to 32", ndim);
    return -1;
}

int silo_dlpack_check(const struct dl_tensor *tensor) {
    const int32_t ndim = tensor->ndim;
    if (SILO_UNLIKELY(ndim < 0 || ndim > 32))
        return refuse_dimensions(ndim);
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

static int shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape) {
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
        return refuse_dimensions(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        values[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

/* Strides are given in bytes where `unit` says how many an element has, else in elements. */
static int shape_of_sequences(PyObject *sizes, PyObject *strides, int32_t unit,
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

int silo_cuda_dict_shape(PyObject *dict, int32_t itemsize, struct silo_shape *shape) {
    PyObject *sizes = PyDict_GetItemString(dict, "shape"); /* borrowed */
    PyObject *strides = PyDict_GetItemString(dict, "strides");
    if (sizes == NULL)
        return 0;
    Py_INCREF(sizes);
    strides = strides == Py_None ? NULL : strides;
    Py_XINCREF(strides);
    shape->itemsize = itemsize;
    const int result = shape_of_sequences(sizes, strides, itemsize, shape);
    Py_DECREF(sizes);
    Py_XDECREF(strides);
    return result == 0 ? 1 : -1;
}

/* From the attributes `shape` and `stride()`, which every duck-typed tensor has; row-major without
 * the latter. */
static int shape_of_attributes(PyObject *object, struct silo_shape *shape) {
    PyObject *sizes = PyObject_GetAttr(object, silo_name_shape);
    if (sizes == NULL)
        return -1;
    PyObject *strides = PyObject_CallMethodObjArgs(object, silo_name_stride, NULL);
    if (strides == NULL)
        PyErr_Clear();
    shape->itemsize = silo_dtype_of_object(object).bits / 8;
    const int result = shape_of_sequences(sizes, strides, 0, shape);
    Py_DECREF(sizes);
    Py_XDECREF(strides);
    return result;
}

int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape) {
    if (buffer->ndim < 0 || buffer->ndim > 32)
        return refuse_dimensions(buffer->ndim);
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

static int shape_of_buffer(PyObject *object, struct silo_shape *shape) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES) != 0)
        return -1;
    const int result = silo_shape_of_buffer(&buffer, shape);
    PyBuffer_Release(&buffer);
    return result;
}

int silo_shape_of_capsule(PyObject *capsule, struct silo_shape *shape) {
    bool readonly;
    const struct dl_tensor *tensor = silo_tensor_of_capsule(capsule, &readonly);
    shape->whole = true; /* DLPack counts elements */
    return tensor ? shape_of_dlpack(tensor, shape) : -1;
}

int silo_shape_read(PyObject *object, const struct silo_adapter *adapter,
                    struct silo_shape *shape) {
    shape->whole = true;
    if (adapter->kind == SILO_ADAPT_TORCH) {
        void *handle = silo_torch_handle(object);
        int64_t ndim, *sizes, *strides;
        int32_t scalar_type;
        if (silo_torch.dim(handle, &ndim) | silo_torch.dtype(handle, &scalar_type) |
            silo_torch.sizes(handle, &sizes) | silo_torch.strides(handle, &strides)) {
            PyErr_SetString(PyExc_ValueError, "torch has no sizes for this tensor");
            return -1;
        }
        if (ndim > 32)
            return refuse_dimensions(ndim);
        shape->ndim = (int32_t)ndim;
        shape->itemsize = silo_torch_dtype(scalar_type).bits / 8;
        memcpy(shape->sizes, sizes, (size_t)ndim * sizeof *sizes);
        memcpy(shape->strides, strides, (size_t)ndim * sizeof *strides);
        return 0;
    }
    if (adapter->kind == SILO_ADAPT_EXCHANGE) {
        struct dl_tensor tensor;
        if (adapter->exchange->tensor_from_object(object, &tensor) != 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "the array has no DLPack form");
            return -1;
        }
        return shape_of_dlpack(&tensor, shape);
    }
    if (adapter->kind == SILO_ADAPT_DESCRIPTOR)
        return silo_descriptor_shape(object, shape);
    if (adapter->kind == SILO_ADAPT_BUFFER) {
        if (shape_of_buffer(object, shape) == 0)
            return 0;
        if (!silo_buffer_failed(object))
            return -1;
    }
    if (adapter->kind == SILO_ADAPT_BUFFER || adapter->kind == SILO_ADAPT_DLPACK) {
        PyObject *capsule = silo_capsule_of(object);
        const int result = capsule ? silo_shape_of_capsule(capsule, shape) : -1;
        Py_XDECREF(capsule);
        return result;
    }
    if (adapter->kind == SILO_ADAPT_CUDA_DICT) {
        struct silo_view view;
        const int found = silo_cuda_dict_read(object, &view, shape);
        if (found != 0)
            return found > 0 ? 0 : -1;
    }
    return shape_of_attributes(object, shape);
}

bool silo_has_no_dimensions(PyObject *object, const struct silo_adapter *adapter) {
    struct silo_shape shape;
    if (silo_shape_read(object, adapter, &shape) == 0)
        return shape.ndim == 0;
    PyErr_Clear(); /* a duck type without a shape is a pointer */
    return false;
}

int silo_check_null(PyObject *object, const struct silo_adapter *adapter) {
    struct silo_shape shape;
    if (silo_shape_read(object, adapter, &shape) != 0)
        return -1;
    for (int32_t i = 0; i < shape.ndim; i++) {
        if (shape.sizes[i] == 0)
            return 0;
    }
    PyErr_SetString(PyExc_ValueError, "it has elements but no memory (a fake or meta tensor?)");
    return -1;
}

/* ---- scalars ---- */

PyObject *silo_number_of(PyObject *object, const struct silo_adapter *adapter) {
    if (silo_stack_check() != 0)
        return NULL;
    switch (adapter->kind) {
    case SILO_ADAPT_INT:
        return PyNumber_Index(object);
    case SILO_ADAPT_FLOAT:
        return PyNumber_Float(object);
    case SILO_ADAPT_BOOL: {
        int truth = PyObject_IsTrue(object);
        return truth < 0 ? NULL : PyBool_FromLong(truth);
    }
    case SILO_ADAPT_NOTHING:
    case SILO_ADAPT_DESCRIPTOR:
        PyErr_SetString(PyExc_TypeError, "not a number");
        return NULL;
    case SILO_ADAPT_TORCH:
    case SILO_ADAPT_EXCHANGE:
    case SILO_ADAPT_BUFFER:
    case SILO_ADAPT_DLPACK:
    case SILO_ADAPT_DATA_PTR:
    case SILO_ADAPT_CUDA_DICT:
        break;
    }
    struct silo_shape shape;
    struct silo_view view;
    Py_buffer buffer;
    PyObject *objects[8];
    struct silo_holds holds = {0, 0, &buffer, objects};
    if (silo_shape_read(object, adapter, &shape) != 0)
        return NULL;
    if (shape.ndim != 0) {
        PyErr_Format(PyExc_TypeError, "an array of %d dimensions is not a number", (int)shape.ndim);
        return NULL;
    }
    int read = silo_view_read(object, adapter, &view, &holds);
    silo_holds_release(&holds);
    if (read != 0)
        return NULL;
    if (view.device_type != SILO_DEVICE_CPU) {
        PyErr_SetString(PyExc_TypeError,
                        "a scalar on a device would have to be copied first; pass x.item()");
        return NULL;
    }
    PyObject *item = PyObject_CallMethodObjArgs(object, silo_name_item, NULL);
    if (item != NULL && !PyLong_Check(item) && !PyFloat_Check(item)) {
        const struct silo_adapter *inner = silo_adapter_of(Py_TYPE(item)); /* an ml_dtypes scalar */
        PyObject *number = NULL;
        if (inner != NULL && inner->kind >= SILO_ADAPT_INT)
            number = silo_number_of(item, inner);
        else if (inner != NULL)
            PyErr_SetString(PyExc_TypeError, "not a number");
        Py_DECREF(item);
        return number;
    }
    return item;
}
