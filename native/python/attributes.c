#include "attributes.h"

#include "adapters.h"
#include "errors.h"
#include "names.h"
#include "torch_shim.h"

#include <stdlib.h>

static PyObject *s_dtype, *s_name, *s_device, *s_shape, *s_stride;

/* Owned dtype objects of numpy and torch, which these libraries never free. Dtypes of other
 * libraries are not cached, because their classes may be freed. */
static struct {
    PyObject *object;
    struct silo_dtype type;
} dtype_cache[16];

int silo_attributes_init(void) {
    static const struct silo_name names[] = {
        {&s_dtype, "dtype"}, {&s_name, "name"},     {&s_device, "device"},
        {&s_shape, "shape"}, {&s_stride, "stride"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}

/* Returns the dtype that a text names: "torch.float32", "float32" and "fp32" all name float32. */
static struct silo_dtype dtype_of_text(PyObject *text) {
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(text, &length);
    if (name == NULL) {
        silo_forget_error();
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
        silo_forget_error();
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
        silo_forget_error();
    PyObject *text = PyObject_Str(name ? name : dtype);
    Py_XDECREF(name);
    if (text == NULL)
        silo_forget_error();
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

/* Returns the DLPack device type for a name such as "cuda" or "cuda:1". */
static int32_t device_type_named(const char *name) {
    static const struct {
        const char *name;
        int32_t type;
    } types[] = {{"cpu", SILO_DEVICE_CPU},
                 {"hip", SILO_DEVICE_ROCM},
                 {"xpu", SILO_DEVICE_ONEAPI},
                 {"mps", SILO_DEVICE_METAL}};
    if (strncmp(name, "cuda", 4) == 0) /* torch gives AMD's GPUs this name too */
        return silo_torch.tensor != NULL ? silo_torch.gpu_type : SILO_DEVICE_CUDA;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(name, types[i].name, 3) == 0)
            return types[i].type;
    return SILO_DEVICE_EXTENSION;
}

void silo_device_of_object(PyObject *object, int32_t *type, int32_t *index) {
    *type = SILO_DEVICE_UNKNOWN;
    *index = 0;
    PyObject *device = PyObject_GetAttr(object, s_device);
    PyObject *text = device != NULL && device != Py_None ? PyObject_Str(device) : NULL;
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (name != NULL) {
        *type = device_type_named(name);
        const char *colon = strchr(name, ':');
        if (colon != NULL && *type != SILO_DEVICE_CPU)
            *index = (int32_t)strtol(colon + 1, NULL, 10);
    }
    silo_forget_error();
    Py_XDECREF(text);
    Py_XDECREF(device);
}

int silo_shape_of_attributes(PyObject *object, struct silo_shape *shape) {
    PyObject *sizes = PyObject_GetAttr(object, s_shape);
    if (sizes == NULL)
        return -1;
    PyObject *strides = PyObject_CallMethodObjArgs(object, s_stride, NULL);
    if (strides == NULL)
        silo_forget_error();
    shape->itemsize = silo_dtype_of_object(object).bits / 8;
    const int result = silo_shape_of_sequences(sizes, strides, 0, shape);
    Py_DECREF(sizes);
    Py_XDECREF(strides);
    return result;
}
