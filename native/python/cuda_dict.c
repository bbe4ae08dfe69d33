#include "cuda_dict.h"

#include "attributes.h"
#include "memory_types.h"
#include "names.h"

#include <stdlib.h>

static PyObject *s_cuda_dict;

int silo_cuda_dict_init(void) {
    static const struct silo_name names[] = {{&s_cuda_dict, "__cuda_array_interface__"}};
    return silo_intern(names, sizeof names / sizeof *names);
}

/* Reads the shape from the dictionary. Returns 1, or 0 if the dictionary has no shape; -1 with an
 * exception set. */
static int read_shape(PyObject *dict, int32_t itemsize, struct silo_shape *shape) {
    PyObject *sizes = PyDict_GetItemString(dict, "shape"); /* borrowed */
    PyObject *strides = PyDict_GetItemString(dict, "strides");
    if (sizes == NULL)
        return 0;
    Py_INCREF(sizes);
    strides = strides == Py_None ? NULL : strides;
    Py_XINCREF(strides);
    shape->itemsize = itemsize;
    const int result = silo_shape_of_sequences(sizes, strides, itemsize, shape);
    Py_DECREF(sizes);
    Py_XDECREF(strides);
    return result == 0 ? 1 : -1;
}

/* Returns the dtype of a typestr such as "<f4". The typestr has no letter for some types (bfloat16,
 * 8-bit floats); their dtype is read from the object's attribute dtype. */
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
    return read_shape(dict, view->dtype.bits / 8, shape);
}

int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape) {
    PyObject *dict = PyObject_GetAttr(object, s_cuda_dict);
    if (dict == NULL)
        return -1;
    /* Both values are held, because the object may change its dictionary during the reading. */
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

/* The protocol does not name the device; if there are several devices, the driver is asked which
 * one owns the address. */
void silo_cuda_dict_place(struct silo_view *view) {
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
