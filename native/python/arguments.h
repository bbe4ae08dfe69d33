/* Reading arguments: the address, dtype and device of anything that holds an array. */
#ifndef SILO_ARGUMENTS_H
#define SILO_ARGUMENTS_H

#include "adapters.h"
#include "descriptor_object.h"
#include "shapes.h"
#include "torch_shim.h"
#include "view.h"

/* The objects that must stay alive until the driver call returns. Both arrays are on the call's
 * stack, and as long as the call's arguments require. They have no fixed maximal length, because a
 * compiler that guards against stack clashes touches every page of a large frame, which would cost
 * time in every call. */
struct silo_holds {
    uint32_t buffers;
    uint32_t objects;
    Py_buffer *buffer; /* one for each argument */
    PyObject **object; /* room for silo_hold_objects() objects */
};

/* Returns the greatest number of objects that a call holds: one for each argument and option, two
 * more for each descriptor, and two allocations of scratch memory. */
SILO_INLINE size_t silo_hold_objects(size_t arguments, size_t options) {
    const size_t descriptors = arguments < SILO_MAX_DESCRIPTORS ? arguments : SILO_MAX_DESCRIPTORS;
    return arguments + options + 2 * descriptors + 2;
}

/* Interns the names of attributes; -1 with an exception set. */
int silo_arguments_init(void);

/* Reads an array by any kind of adapter but the torch shim; -1 with an exception set. */
int silo_view_slow(PyObject *object, const struct silo_adapter *adapter, struct silo_view *view,
                   struct silo_holds *holds);

SILO_INLINE int silo_view_read(PyObject *object, const struct silo_adapter *adapter,
                               struct silo_view *view, struct silo_holds *holds) {
    if (SILO_LIKELY(adapter->kind == SILO_ADAPT_TORCH)) {
        void *handle = silo_torch_handle(object), *data;
        int32_t scalar_type, device_type, device_id;
        if (SILO_UNLIKELY(silo_torch_read(handle, &data, &scalar_type, &device_type, &device_id) !=
                          0)) {
            PyErr_SetString(PyExc_ValueError, silo_torch_holds_others(handle)
                                                  ? "its memory does not hold its values"
                                                  : "torch has no data pointer for this tensor");
            return -1;
        }
        view->address = (uint64_t)(uintptr_t)data;
        view->dtype = silo_torch_dtype(scalar_type);
        view->device_type = silo_torch_device(device_type);
        view->device_id = device_type == SILO_TORCH_CPU ? 0 : device_id;
        view->readonly = false;
    } else if (SILO_UNLIKELY(silo_view_slow(object, adapter, view, holds))) {
        return -1;
    }
    if (SILO_UNLIKELY(view->address == 0))
        return silo_check_null(object, adapter);
    return 0;
}

void silo_holds_release(struct silo_holds *holds);

#endif
