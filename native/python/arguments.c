#include "arguments.h"
#include "errors.h"

#include "attributes.h"
#include "capsule.h"
#include "cuda_dict.h"
#include "flat.h"
#include "memory_types.h"
#include "names.h"
#include "stack.h"

static PyObject *s_data_ptr, *s_is_neg;

int silo_arguments_init(void) {
    static const struct silo_name names[] = {{&s_data_ptr, "data_ptr"}, {&s_is_neg, "is_neg"}};
    return silo_intern(names, sizeof names / sizeof *names);
}

/* Reads the address, dtype and device of a DLPack tensor; -1 with an exception set. */
static int view_of_dlpack(const struct dl_tensor *tensor, struct silo_view *view) {
    if (SILO_UNLIKELY(silo_check_tensor(tensor) != 0))
        return -1;
    view->address = tensor->data ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
    /* Keys hold only 16 bits of the device type, so a larger number could be taken for a known
     * type. */
    const int32_t type = tensor->device.type;
    view->device_type = type > 0 && type <= INT16_MAX ? type : SILO_DEVICE_EXTENSION;
    view->device_id = type == SILO_DEVICE_CPU ? 0 : tensor->device.id;
    view->dtype.code = tensor->dtype.code;
    view->dtype.bits = tensor->dtype.lanes == 1 ? tensor->dtype.bits : 0;
    view->readonly = false;
    return 0;
}

static int view_of_buffer(PyObject *object, struct silo_view *view, struct silo_holds *holds) {
    Py_buffer *buffer = &holds->buffer[holds->buffers];
    if (SILO_LIKELY(PyObject_GetBuffer(object, buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0)) {
        view->dtype = silo_dtype_of_format(buffer->format, buffer->itemsize);
    } else {
        /* The struct module's formats lack bfloat16 and fp8; such memory is requested without a
         * format. */
        silo_forget_error();
        if (PyObject_GetBuffer(object, buffer, PyBUF_STRIDES) != 0)
            return -1;
        view->dtype = silo_dtype_of_object(object);
    }
    holds->buffers++;
    view->address = buffer->len ? (uint64_t)(uintptr_t)buffer->buf : 0;
    view->device_type = SILO_DEVICE_CPU;
    view->device_id = 0;
    view->readonly = buffer->readonly != 0;
    return 0;
}

static int view_of_capsule(PyObject *object, struct silo_view *view, struct silo_holds *holds) {
    PyObject *capsule = silo_capsule_of(object);
    if (capsule == NULL)
        return -1;
    bool readonly;
    const struct dl_tensor *tensor = silo_tensor_of_capsule(capsule, &readonly);
    if (tensor == NULL) {
        Py_DECREF(capsule);
        return -1;
    }
    const int result = view_of_dlpack(tensor, view);
    view->readonly = readonly;
    holds->object[holds->objects++] =
        capsule; /* some producers give a copy, which must live to the end of the call */
    return result;
}

/* Reads an array through its buffer, else through a DLPack capsule. Reading a buffer takes a tenth
 * of the time of a capsule, but some libraries offer no buffer for GPU memory, or for bfloat16 and
 * 8-bit floats (jax). */
static int view_of_buffer_or_capsule(PyObject *object, struct silo_view *view,
                                     struct silo_holds *holds) {
    if (SILO_LIKELY(view_of_buffer(object, view, holds) == 0))
        return 0;
    if (!silo_buffer_failed(object) || view_of_capsule(object, view, holds) != 0)
        return -1;
    /* Unversioned capsules ("dltensor") lack a read-only flag. Those that get here are from jax,
     * whose arrays are immutable and whose buffers are read-only, so the array counts as read-only.
     */
    view->readonly |= PyCapsule_IsValid(holds->object[holds->objects - 1], "dltensor") != 0;
    return 0;
}

static int view_of_data_ptr(PyObject *object, struct silo_view *view) {
    PyObject *address = PyObject_CallMethodObjArgs(object, s_data_ptr, NULL);
    if (address == NULL)
        return -1;
    view->address = (uint64_t)PyLong_AsSize_t(address);
    Py_DECREF(address);
    if (PyErr_Occurred())
        return -1;
    view->dtype = silo_dtype_of_object(object);
    view->readonly = false;
    silo_device_of_object(object, &view->device_type, &view->device_id);
    return 0;
}

static int view_of_cuda_dict(PyObject *object, struct silo_view *view) {
    struct silo_shape shape;
    if (silo_cuda_dict_read(object, view, &shape) < 0)
        return -1;
    silo_cuda_dict_place(view);
    return 0;
}

/* Calls the array library's reader with an array. Returns 1 if the array has no address, with the
 * reader's description in `view`; 0 if it has an address; -1 with an exception set. */
static int view_of_reader(PyObject *object, const struct silo_adapter *adapter,
                          struct silo_view *view) {
    PyObject *answer = silo_call_one(adapter->reader, object);
    if (answer == NULL || answer == Py_None) {
        Py_XDECREF(answer);
        return answer == NULL ? -1 : 0;
    }
    int type, id, readonly;
    const char *dtype;
    int result = -1;
    if (!PyTuple_Check(answer))
        PyErr_SetString(PyExc_TypeError, "a reader of arrays gives a tuple or None");
    else if (PyArg_ParseTuple(answer, "iisp", &type, &id, &dtype, &readonly)) {
        *view = (struct silo_view){.device_type =
                                       type > 0 && type <= INT16_MAX ? type : SILO_DEVICE_EXTENSION,
                                   .device_id = id,
                                   .dtype = silo_dtype_named(dtype, strlen(dtype)),
                                   .readonly = readonly != 0};
        result = 1;
    }
    Py_DECREF(answer);
    return result;
}

/* Returns whether the array is a view whose memory holds the negated values (torch's is_neg). */
static bool is_negated(PyObject *object) {
    PyObject *answer = PyObject_CallMethodObjArgs(object, s_is_neg, NULL);
    if (answer == NULL)
        silo_forget_error();
    Py_XDECREF(answer);
    return answer == Py_True;
}

int silo_view_slow(PyObject *object, const struct silo_adapter *adapter, struct silo_view *view,
                   struct silo_holds *holds) {
    if ((adapter->calls || adapter->reader != NULL) && silo_stack_check() != 0)
        return -1;
    if (adapter->reader != NULL) {
        const int status = view_of_reader(object, adapter, view);
        if (status != 0)
            return status < 0 ? -1 : 0;
    }
    if (adapter->negates && is_negated(object)) {
        PyErr_SetString(PyExc_ValueError, "its memory does not hold its values");
        return -1;
    }
    switch (adapter->kind) {
    case SILO_ADAPT_EXCHANGE: {
        struct dl_tensor tensor;
        if (adapter->exchange->tensor_from_object(object, &tensor) != 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "the array has no DLPack form");
            return -1;
        }
        return view_of_dlpack(&tensor, view);
    }
    case SILO_ADAPT_BUFFER:
        return view_of_buffer_or_capsule(object, view, holds);
    case SILO_ADAPT_DLPACK:
        return view_of_capsule(object, view, holds);
    case SILO_ADAPT_DATA_PTR:
        return view_of_data_ptr(object, view);
    case SILO_ADAPT_CUDA_DICT:
        return view_of_cuda_dict(object, view);
    case SILO_ADAPT_NOTHING:
    case SILO_ADAPT_TORCH:
    case SILO_ADAPT_INT:
    case SILO_ADAPT_FLOAT:
    case SILO_ADAPT_BOOL:
    case SILO_ADAPT_DESCRIPTOR:
        break;
    }
    PyErr_SetString(PyExc_TypeError, "not an array");
    return -1;
}

void silo_holds_release(struct silo_holds *holds) {
    while (holds->buffers > 0)
        PyBuffer_Release(&holds->buffer[--holds->buffers]);
    while (holds->objects > 0)
        Py_DECREF(holds->object[--holds->objects]);
}
