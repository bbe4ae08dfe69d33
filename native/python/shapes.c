#include "shapes.h"
#include "errors.h"

#include "attributes.h"
#include "capsule.h"
#include "cuda_dict.h"
#include "descriptor_object.h"
#include "torch_shim.h"

static int shape_of_buffer(PyObject *object, struct silo_shape *shape) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES) != 0)
        return -1;
    const int result = silo_shape_of_buffer(&buffer, shape);
    PyBuffer_Release(&buffer);
    return result;
}

int silo_shape_read(PyObject *object, const struct silo_adapter *adapter,
                    struct silo_shape *shape) {
    shape->whole = true;
    if (adapter->kind == SILO_ADAPT_TORCH) {
        void *handle = silo_torch_handle(object);
        const int64_t *own_sizes, *own_strides;
        const int32_t rank = silo_torch_extents(handle, &own_sizes, &own_strides);
        int64_t ndim, *sizes, *strides;
        int32_t scalar_type;
        if (SILO_LIKELY(rank >= 0) && silo_torch.dtype(handle, &scalar_type) == 0) {
            shape->ndim = rank;
            shape->itemsize = silo_torch_dtype(scalar_type).bits / 8;
            memcpy(shape->sizes, own_sizes, SILO_TORCH_AXES * sizeof *sizes);
            memcpy(shape->strides, own_strides, SILO_TORCH_AXES * sizeof *strides);
            return 0;
        }
        if (silo_torch.dim(handle, &ndim) | silo_torch.dtype(handle, &scalar_type) |
            silo_torch.sizes(handle, &sizes) | silo_torch.strides(handle, &strides)) {
            PyErr_SetString(PyExc_ValueError, "torch has no sizes for this tensor");
            return -1;
        }
        if (ndim > 32)
            return silo_refuse_dimensions(ndim);
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
        return silo_shape_of_tensor(&tensor, shape);
    }
    if (adapter->kind == SILO_ADAPT_DESCRIPTOR)
        return silo_descriptor_shape(object, shape);
    if (adapter->kind == SILO_ADAPT_BUFFER) {
        if (shape_of_buffer(object, shape) == 0)
            return 0;
        if (!silo_buffer_failed(object))
            return -1;
    }
    /* The array may lack an address, so its shape is read from its attributes. Arrays with a reader
     * are row-major. */
    if (adapter->reader != NULL)
        return silo_shape_of_attributes(object, shape);
    if (adapter->kind == SILO_ADAPT_BUFFER || adapter->kind == SILO_ADAPT_DLPACK) {
        PyObject *capsule = silo_capsule_of(object);
        const int result = capsule ? silo_shape_of_capsule(capsule, shape) : -1;
        Py_XDECREF(capsule);
        return result;
    }
    if (adapter->kind == SILO_ADAPT_CUDA_DICT) {
        struct silo_view view;
        const int status = silo_cuda_dict_read(object, &view, shape);
        if (status != 0)
            return status > 0 ? 0 : -1;
    }
    return silo_shape_of_attributes(object, shape);
}

bool silo_has_no_dimensions(PyObject *object, const struct silo_adapter *adapter) {
    struct silo_shape shape;
    if (silo_shape_read(object, adapter, &shape) == 0)
        return shape.ndim == 0;
    silo_forget_error(); /* a duck-typed array without a shape is read as a pointer */
    return false;
}

int silo_check_null(PyObject *object, const struct silo_adapter *adapter) {
    struct silo_shape shape;
    if (adapter->reader != NULL) /* the reader has reported whether the array has an address */
        return 0;
    if (silo_shape_read(object, adapter, &shape) != 0)
        return -1;
    for (int32_t i = 0; i < shape.ndim; i++) {
        if (shape.sizes[i] == 0)
            return 0;
    }
    PyErr_SetString(PyExc_ValueError, "it has elements but no memory (a fake or meta tensor?)");
    return -1;
}
