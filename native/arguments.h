/* Reading arguments: the address, dtype and device of anything that holds an array, and numbers out
 * of anything that holds one. */
#ifndef SILO_ARGUMENTS_H
#define SILO_ARGUMENTS_H

#include "adapters.h"
#include "descriptor.h"
#include "dlpack.h"
#include "dtypes.h"
#include "python.h"
#include "torch_shim.h"

/* What a launch needs of an array. */
struct silo_view {
    uint64_t address; /* 0: no elements */
    int32_t device_type;
    int32_t device_id;
    struct silo_dtype dtype;
    bool readonly;
};

/* What grid expressions and facts need besides. Strides count elements. */
struct silo_shape {
    int32_t ndim;
    int32_t itemsize; /* bytes; 0: unknown */
    bool whole;       /* the strides are whole elements; else they were rounded */
    int64_t sizes[32];
    int64_t strides[32];
};

/* What must stay alive until the driver call is over. The memory lies on the stack of the call, as
 * long as its arguments need: large frames cost a touch of every page where the compiler guards
 * against stack clashes. */
struct silo_holds {
    uint32_t buffers;
    uint32_t objects;
    Py_buffer *buffer; /* one an argument */
    PyObject **object; /* silo_hold_objects() */
};

/* Objects that a call may hold: one an argument or option, two more a descriptor, two allocations
 * of scratch memory. */
SILO_INLINE size_t silo_hold_objects(size_t arguments, size_t options) {
    const size_t descriptors = arguments < SILO_MAX_DESCRIPTORS ? arguments : SILO_MAX_DESCRIPTORS;
    return arguments + options + 2 * descriptors + 2;
}

int silo_arguments_init(void);

/* Read an array by any adapter but the shim. -1 with an exception set. */
int silo_view_slow(PyObject *object, const struct silo_adapter *adapter, struct silo_view *view,
                   struct silo_holds *holds);

/* Whether the numbers of a tensor can be true: dimensions, extents, the bytes it reaches. -1 with
 * an exception set. */
int silo_dlpack_check(const struct dl_tensor *tensor);

/* What an object's `__cuda_array_interface__` says, but for the device: 1, or 0 where it says no
 * shape; -1 with an exception set, as where the shape cannot be. */
int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape);

/* Its shape alone, likewise. */
int silo_cuda_dict_shape(PyObject *dict, int32_t itemsize, struct silo_shape *shape);

/* Null data is right only for an array without elements (a fake tensor has neither). */
int silo_check_null(PyObject *object, const struct silo_adapter *adapter);

SILO_INLINE int silo_view_read(PyObject *object, const struct silo_adapter *adapter,
                               struct silo_view *view, struct silo_holds *holds) {
    if (SILO_LIKELY(adapter->kind == SILO_ADAPT_TORCH)) {
        void *handle = silo_torch_handle(object), *data;
        int32_t scalar_type, device_type, device_id;
        if (SILO_UNLIKELY(silo_torch_read(handle, &data, &scalar_type, &device_type, &device_id) !=
                          0)) {
            PyErr_SetString(PyExc_ValueError, "torch has no data pointer for this tensor");
            return -1;
        }
        view->address = (uint64_t)(uintptr_t)data;
        view->dtype = silo_torch_dtype(scalar_type);
        view->device_type = silo_torch_device(device_type);
        view->device_id = device_type == 0 ? 0 : device_id;
        view->readonly = false;
    } else if (SILO_UNLIKELY(silo_view_slow(object, adapter, view, holds))) {
        return -1;
    }
    if (SILO_UNLIKELY(view->address == 0))
        return silo_check_null(object, adapter);
    return 0;
}

/* Sizes and strides. -1 with an exception set. */
int silo_shape_read(PyObject *object, const struct silo_adapter *adapter, struct silo_shape *shape);

/* The same of a buffer, or a capsule, that a call holds. */
int silo_shape_of_buffer(const Py_buffer *buffer, struct silo_shape *shape);
int silo_shape_of_capsule(PyObject *capsule, struct silo_shape *shape);

/* Whether it is a 0-d array. Never leaves an exception. */
bool silo_has_no_dimensions(PyObject *object, const struct silo_adapter *adapter);

void silo_holds_release(struct silo_holds *holds);

/* The Python number behind a scalar of another library or a 0-d array on the host (new reference):
 * an int, float or bool. NULL with an exception set. */
PyObject *silo_number_of(PyObject *object, const struct silo_adapter *adapter);

/* Shared by the files that read arrays (arguments.c, shapes.c). */

/* The dtype that an object's `dtype` attribute names; bits 0 where it names none. Never leaves an
 * exception. */
struct silo_dtype silo_dtype_of_object(PyObject *object);

/* A new DLPack capsule of the object, asking the producer not to wait for its stream. */
PyObject *silo_capsule_of(PyObject *object);

/* After a failed buffer: whether the object gives capsules, with the exception gone, else the
 * exception stays. */
bool silo_buffer_failed(PyObject *object);

/* The tensor inside a capsule of either DLPack generation, or NULL with an exception set. */
const struct dl_tensor *silo_tensor_of_capsule(PyObject *capsule, bool *readonly);

/* Interned attribute names. */
extern PyObject *silo_name_item, *silo_name_shape, *silo_name_stride;

#endif
