#include "arguments.h"

/* ---- shapes ---- */

static int too_many(void) {
    PyErr_SetString(PyExc_ValueError, "the array has more than 32 dimensions");
    return -1;
}

/* Fill strides of a compact row-major array. */
static void compact(struct silo_shape *shape) {
    int64_t step = 1;
    for (int32_t i = shape->ndim - 1; i >= 0; i--) {
        shape->strides[i] = step;
        step *= shape->sizes[i];
    }
}

static int shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape) {
    if (tensor->ndim > 32)
        return too_many();
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

/* From the attributes `shape` and `stride()`, which every duck-typed tensor has; row-major without
 * the latter. */
static int shape_of_attributes(PyObject *object, struct silo_shape *shape) {
    PyObject *sizes = PyObject_GetAttr(object, silo_name_shape);
    Py_ssize_t count = sizes ? PySequence_Size(sizes) : -1;
    if (count < 0 || count > 32) {
        Py_XDECREF(sizes);
        return count > 32 ? too_many() : -1;
    }
    PyObject *strides = PyObject_CallMethodObjArgs(object, silo_name_stride, NULL);
    if (strides == NULL)
        PyErr_Clear();
    shape->ndim = (int32_t)count;
    shape->itemsize = silo_dtype_of_object(object).bits / 8;
    int result = 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        PyObject *size = PySequence_GetItem(sizes, i);
        PyObject *stride = strides ? PySequence_GetItem(strides, i) : NULL;
        shape->sizes[i] = size ? PyLong_AsLongLong(size) : -1;
        shape->strides[i] = stride ? PyLong_AsLongLong(stride) : 0;
        Py_XDECREF(size);
        Py_XDECREF(stride);
        result = PyErr_Occurred() ? -1 : 0;
    }
    if (result == 0 && strides == NULL)
        compact(shape);
    Py_DECREF(sizes);
    Py_XDECREF(strides);
    return result;
}

static int shape_of_buffer(PyObject *object, struct silo_shape *shape) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES) != 0)
        return -1;
    int result = buffer.ndim > 32 ? too_many() : 0;
    if (result == 0) {
        shape->ndim = buffer.ndim;
        shape->itemsize = (int32_t)buffer.itemsize;
        /* Not every exporter gives what was asked for: ctypes arrays have no strides. */
        for (int i = 0; i < buffer.ndim; i++)
            shape->sizes[i] = buffer.shape ? buffer.shape[i]
                                           : buffer.len / (buffer.itemsize ? buffer.itemsize : 1);
        if (buffer.strides == NULL)
            compact(shape);
        for (int i = 0; buffer.strides != NULL && i < buffer.ndim; i++)
            shape->strides[i] = buffer.itemsize ? buffer.strides[i] / buffer.itemsize : 0;
    }
    PyBuffer_Release(&buffer);
    return result;
}

int silo_shape_read(PyObject *object, const struct silo_adapter *adapter,
                    struct silo_shape *shape) {
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
            return too_many();
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
        bool readonly;
        const struct dl_tensor *tensor =
            capsule ? silo_tensor_of_capsule(capsule, &readonly) : NULL;
        int result = tensor ? shape_of_dlpack(tensor, shape) : -1;
        Py_XDECREF(capsule);
        return result;
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
