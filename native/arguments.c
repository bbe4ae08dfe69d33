#include "arguments.h"

#include "errors.h"
#include "memory_types.h"
#include "names.h"
#include "stack.h"
#include "torch_shim.h"

#include <stdlib.h>

static PyObject *s_dlpack, *s_dlpack_device, *s_data_ptr, *s_cuda_dict, *s_dtype, *s_name,
    *s_device;
PyObject *silo_name_item, *silo_name_shape, *silo_name_stride;

/* dtype objects of numpy and torch, which live as long as they do; each owned. Those of others are
 * not kept: they may be of a class that goes. */
static struct {
    PyObject *object;
    struct silo_dtype type;
} dtype_cache[16];

int silo_arguments_init(void) {
    static const struct silo_name names[] = {
        {&s_dlpack, "__dlpack__"},   {&s_dlpack_device, "__dlpack_device__"},
        {&s_data_ptr, "data_ptr"},   {&s_cuda_dict, "__cuda_array_interface__"},
        {&s_dtype, "dtype"},         {&s_name, "name"},
        {&s_device, "device"},       {&silo_name_item, "item"},
        {&silo_name_shape, "shape"}, {&silo_name_stride, "stride"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}

/* ---- dtypes of objects ---- */

/* "torch.float32", "float32" and "fp32" all name float32. */
static struct silo_dtype dtype_of_text(PyObject *text) {
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(text, &length);
    if (name == NULL) {
        PyErr_Clear();
        return (struct silo_dtype){0, 0};
    }
    const char *dot = strrchr(name, '.');
    const char *start = dot ? dot + 1 : name;
    return silo_dtype_named(start, (size_t)(length - (start - name)));
}

struct silo_dtype silo_dtype_of_object(PyObject *object) {
    struct silo_dtype type = {0, 0};
    PyObject *dtype = PyObject_GetAttr(object, s_dtype);
    if (dtype == NULL) {
        PyErr_Clear();
        return type;
    }
    const size_t cached = sizeof dtype_cache / sizeof *dtype_cache;
    size_t i = 0;
    for (; i < cached && dtype_cache[i].object != NULL; i++) {
        if (dtype_cache[i].object == dtype) {
            Py_DECREF(dtype);
            return dtype_cache[i].type;
        }
    }
    PyObject *name = PyObject_GetAttr(dtype, s_name);
    if (name == NULL)
        PyErr_Clear();
    PyObject *text = PyObject_Str(name ? name : dtype);
    Py_XDECREF(name);
    if (text == NULL)
        PyErr_Clear();
    else
        type = dtype_of_text(text);
    Py_XDECREF(text);
    if (type.bits != 0 && i < cached && dtype_cache[i].object == NULL &&
        (silo_is_from(Py_TYPE(dtype), "numpy") || silo_is_from(Py_TYPE(dtype), "torch"))) {
        dtype_cache[i].type = type;
        dtype_cache[i].object = dtype; /* the reference moves into the cache */
    } else {
        Py_DECREF(dtype);
    }
    return type;
}

/* The DLPack device type of what array libraries call a device, with or without its number. */
static int32_t device_type_named(const char *name) {
    static const struct {
        const char *name;
        int32_t type;
    } known[] = {{"cpu", SILO_DEVICE_CPU},
                 {"hip", SILO_DEVICE_ROCM},
                 {"xpu", SILO_DEVICE_ONEAPI},
                 {"mps", SILO_DEVICE_METAL}};
    if (strncmp(name, "cuda", 4) == 0) /* torch's name for AMD's too */
        return silo_torch.tensor != NULL ? silo_torch.gpu_type : SILO_DEVICE_CUDA;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(name, known[i].name, 3) == 0)
            return known[i].type;
    return SILO_DEVICE_EXTENSION;
}

/* "cpu", "cuda", "cuda:1" of an object's `device`; unknown where it has none. */
static void device_of_object(PyObject *object, struct silo_view *view) {
    view->device_type = SILO_DEVICE_UNKNOWN;
    view->device_id = 0;
    PyObject *device = PyObject_GetAttr(object, s_device);
    PyObject *text = device != NULL && device != Py_None ? PyObject_Str(device) : NULL;
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (name != NULL) {
        view->device_type = device_type_named(name);
        const char *colon = strchr(name, ':');
        if (colon != NULL && view->device_type != SILO_DEVICE_CPU)
            view->device_id = (int32_t)strtol(colon + 1, NULL, 10);
    }
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(device);
}

/* ---- views ---- */

/* -1 with an exception set. */
static int view_of_dlpack(const struct dl_tensor *tensor, struct silo_view *view) {
    if (SILO_UNLIKELY(silo_dlpack_check(tensor) != 0))
        return -1;
    view->address = tensor->data ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
    /* A number that DLPack does not have must not look like one that it has: keys hold 16 bits. */
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
        /* The struct language cannot say bfloat16 or fp8: the memory comes without a format then.
         */
        PyErr_Clear();
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

const struct dl_tensor *silo_tensor_of_capsule(PyObject *capsule, bool *readonly) {
    *readonly = false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->major != 1) { /* what follows may lie elsewhere */
            PyErr_Format(PyExc_ValueError, "its DLPack capsule is of version %u.%u; 1 is known",
                         managed->major, managed->minor);
            return NULL;
        }
        *readonly = (managed->flags & DL_FLAG_READ_ONLY) != 0;
        return &managed->tensor;
    }
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? &managed->tensor : NULL;
}

PyObject *silo_capsule_of(PyObject *object) {
    /* On a GPU a producer waits for its stream by default; -1 says that the caller orders the work.
     */
    PyObject *device = PyObject_CallMethodObjArgs(object, s_dlpack_device, NULL);
    if (device == NULL)
        return NULL;
    PyObject *type = PySequence_GetItem(device, 0);
    long code = type ? PyLong_AsLong(type) : -1;
    Py_XDECREF(type);
    Py_DECREF(device);
    if (code == -1 && PyErr_Occurred())
        return NULL;
    PyObject *method = PyObject_GetAttr(object, s_dlpack);
    if (method == NULL)
        return NULL;
    PyObject *empty = PyTuple_New(0), *capsule = NULL;
    PyObject *keywords =
        code == SILO_DEVICE_CPU ? PyDict_New() : Py_BuildValue("{s:i}", "stream", -1);
    if (empty && keywords)
        capsule = PyObject_Call(method, empty, keywords);
    Py_XDECREF(empty);
    Py_XDECREF(keywords);
    Py_DECREF(method);
    return capsule;
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
        capsule; /* some producers hand out a copy: keep it to the end */
    return result;
}

bool silo_buffer_failed(PyObject *object) {
    PyObject *cause = silo_take_exception();
    if (PyObject_HasAttr(object, s_dlpack)) {
        Py_XDECREF(cause);
        return true;
    }
    if (cause != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
    Py_XDECREF(cause);
    return false;
}

/* Buffers cost a tenth of capsules, but some libraries' have none for memory of a GPU, or for
 * bfloat16 and 8-bit floats (jax). */
static int view_of_buffer_or_capsule(PyObject *object, struct silo_view *view,
                                     struct silo_holds *holds) {
    if (SILO_LIKELY(view_of_buffer(object, view, holds) == 0))
        return 0;
    if (!silo_buffer_failed(object) || view_of_capsule(object, view, holds) != 0)
        return -1;
    /* Old capsules cannot say it; jax's arrays are immutable, and its buffers say so. */
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
    device_of_object(object, view);
    return 0;
}

/* The protocol does not say which device: with several, the driver knows. */
static void place_of_cuda_dict(struct silo_view *view) {
    const struct silo_gpu *gpu = silo_gpu_usual();
    view->device_type = gpu->memory_type;
    view->device_id = 0;
    int32_t type, index;
    if (view->address != 0 && gpu->open && gpu->device_count > 1 &&
        gpu->locate(view->address, &type, &index) == 0 && type != SILO_DEVICE_CPU) {
        view->device_type = type;
        view->device_id = index;
    }
}

/* "<f4" and its like; what numpy has no letter for says the object's dtype. */
static struct silo_dtype dtype_of_typestr(PyObject *object, const char *text) {
    static const char letters[] = "iufb";
    static const uint8_t codes[] = {SILO_INT, SILO_UINT, SILO_FLOAT, SILO_BOOL};
    const long bytes = strtol(text + 2, NULL, 10);
    const char *letter = strchr(letters, text[1]);
    if (letter != NULL && text[0] != '>' && bytes >= 1 && bytes <= 8)
        return (struct silo_dtype){codes[letter - letters], (uint8_t)(8 * bytes)};
    return silo_dtype_of_object(object);
}

static int read_cuda_dict(PyObject *object, PyObject *dict, PyObject *data, PyObject *typestr,
                          struct silo_view *view, struct silo_shape *shape) {
    Py_ssize_t length = 0;
    const char *text = typestr ? PyUnicode_AsUTF8AndSize(typestr, &length) : NULL;
    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || text == NULL ||
        length < 3) {
        PyErr_SetString(PyExc_ValueError, "malformed __cuda_array_interface__");
        return -1;
    }
    view->dtype = dtype_of_typestr(object, text);
    view->address = (uint64_t)PyLong_AsSize_t(PyTuple_GetItem(data, 0));
    const int readonly = PyErr_Occurred() ? -1 : PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (readonly < 0)
        return -1;
    view->readonly = readonly == 1;
    return silo_cuda_dict_shape(dict, view->dtype.bits / 8, shape);
}

int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape) {
    PyObject *dict = PyObject_GetAttr(object, s_cuda_dict);
    if (dict == NULL)
        return -1;
    /* Held: the object may change its dictionary while it is asked for more. */
    PyObject *data = PyDict_Check(dict) ? PyDict_GetItemString(dict, "data") : NULL;
    PyObject *typestr = PyDict_Check(dict) ? PyDict_GetItemString(dict, "typestr") : NULL;
    Py_XINCREF(data);
    Py_XINCREF(typestr);
    const int result = read_cuda_dict(object, dict, data, typestr, view, shape);
    Py_XDECREF(typestr);
    Py_XDECREF(data);
    Py_DECREF(dict);
    return result;
}

static int view_of_cuda_dict(PyObject *object, struct silo_view *view) {
    struct silo_shape shape;
    if (silo_cuda_dict_read(object, view, &shape) < 0)
        return -1;
    place_of_cuda_dict(view);
    return 0;
}

/* Whether such an array may be read by code in Python: a buffer may where a class has it. */
static bool runs_python(const struct silo_adapter *adapter) {
    return adapter->kind == SILO_ADAPT_DLPACK || adapter->kind == SILO_ADAPT_DATA_PTR ||
           adapter->kind == SILO_ADAPT_CUDA_DICT ||
           (adapter->kind == SILO_ADAPT_BUFFER && adapter->weak != NULL);
}

int silo_view_slow(PyObject *object, const struct silo_adapter *adapter, struct silo_view *view,
                   struct silo_holds *holds) {
    if (runs_python(adapter) && silo_stack_check() != 0)
        return -1;
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
