/* The functions of the module that deal with drivers and devices. */
#include "gpu_functions.h"

#include "errors.h"
#include "gpu_device.h"

#include <stdio.h>

static PyObject *py_open(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind, *path = NULL;
    if (!PyArg_ParseTuple(args, "s|z", &kind, &path))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_get_open(kind, path);
    if (gpu == NULL)
        return NULL;
    return PyLong_FromLong(gpu->device_count);
}

/* Adds an item to the dict, and steals `value`. */
static int put(PyObject *dict, const char *name, PyObject *value) {
    const int result = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return result;
}

static PyObject *describe(const struct silo_gpu *gpu, const struct silo_gpu_facts *facts) {
    struct silo_gpu_number numbers[SILO_GPU_NUMBERS];
    silo_gpu_numbers(gpu, facts, numbers);
    char pci[32] = "", uuid[33];
    if (facts->pci_domain >= 0 && facts->pci_bus >= 0 && facts->pci_device >= 0)
        snprintf(pci, sizeof pci, "%04x:%02x:%02x.0", (unsigned)facts->pci_domain,
                 (unsigned)facts->pci_bus, (unsigned)facts->pci_device);
    for (int i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", facts->uuid[i]);
    /* AMD's features follow the name: "gfx90a:sramecc+:xnack-". */
    const char *features = strchr(facts->arch, ':');
    const int length = features != NULL ? (int)(features - facts->arch) : (int)strlen(facts->arch);
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int bad = put(dict, "name",
                  PyUnicode_DecodeUTF8(facts->name, (Py_ssize_t)strlen(facts->name), "replace"));
    bad |= put(dict, "arch", PyUnicode_FromStringAndSize(facts->arch, length));
    bad |= put(dict, "features", PyUnicode_FromString(features != NULL ? features + 1 : ""));
    for (size_t i = 0; i < SILO_GPU_NUMBERS; i++)
        bad |= put(dict, numbers[i].name, PyLong_FromLongLong(numbers[i].value));
    bad |= put(dict, "pci_bus_id", PyUnicode_FromString(pci));
    bad |= put(dict, "uuid", PyUnicode_FromString(uuid));
    if (bad)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *py_attributes(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int index;
    if (!PyArg_ParseTuple(args, "si", &kind, &index))
        return NULL;
    silo_error error;
    struct silo_gpu_facts facts;
    struct silo_gpu *gpu;
    int result = -1;
    Py_BEGIN_ALLOW_THREADS gpu = silo_gpu_named(kind, &error);
    if (gpu != NULL)
        result = silo_gpu_describe(gpu, index, &facts, &error);
    Py_END_ALLOW_THREADS if (result != 0) {
        silo_raise_as(silo_device_error, &error);
        return NULL;
    }
    return describe(gpu, &facts);
}

static PyObject *py_capturing(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int index, status = 0, code;
    unsigned long long stream = 0;
    if (!PyArg_ParseTuple(args, "siK", &kind, &index, &stream))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    struct silo_gpu_scope scope;
    if (device == NULL)
        return NULL;
    struct silo_gpu *gpu = device->gpu;
    code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = gpu->stream_capturing((void *)(uintptr_t)stream, &status);
        silo_gpu_leave(&scope);
    }
    if (code == SILO_GPU_CAPTURE_IMPLICIT) /* the stream is the null stream, and another stream is
                                              being captured */
        Py_RETURN_TRUE;
    if (code != 0)
        return silo_gpu_error(gpu, "cannot ask whether a stream is capturing", code), NULL;
    return PyBool_FromLong(status);
}

static PyObject *py_locate(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    unsigned long long address;
    int32_t type, index;
    if (!PyArg_ParseTuple(args, "sK", &kind, &address))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_get_open(kind, NULL);
    if (gpu == NULL)
        return NULL;
    const int code = gpu->locate(address, &type, &index);
    if (code != 0)
        return silo_gpu_error(gpu, "cannot ask where memory is", code), NULL;
    return Py_BuildValue("(ii)", (int)type, (int)index);
}

static PyObject *py_current(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int32_t index;
    if (!PyArg_ParseTuple(args, "s", &kind))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_get_open(kind, NULL);
    if (gpu == NULL)
        return NULL;
    if (gpu->current_device(&index) != 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(index);
}

/* Makes the device of (kind, index) current, releases the GIL and calls `query`. */
static int on_device(PyObject *args, const char *action,
                     int (*query)(struct silo_gpu *gpu, size_t *answer), size_t *answer) {
    const char *kind;
    int index, code;
    if (!PyArg_ParseTuple(args, "si", &kind, &index))
        return -1;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    struct silo_gpu_scope scope;
    if (device == NULL)
        return -1;
    struct silo_gpu *gpu = device->gpu;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = query(gpu, answer);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code != 0) {
        silo_gpu_error(gpu, action, code);
        return -1;
    }
    return 0;
}

static int ask_to_finish(struct silo_gpu *gpu, size_t *answer) {
    (void)answer;
    return gpu->synchronize();
}

static int ask_for_free(struct silo_gpu *gpu, size_t *available) {
    size_t total;
    return gpu->memory_info(available, &total);
}

static PyObject *py_synchronize(PyObject *module, PyObject *args) {
    (void)module;
    if (on_device(args, "cannot synchronise", ask_to_finish, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_free_memory(PyObject *module, PyObject *args) {
    (void)module;
    size_t available = 0;
    if (on_device(args, "cannot ask for free memory", ask_for_free, &available) != 0)
        return NULL;
    return PyLong_FromSize_t(available);
}

static PyObject *py_within(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int index;
    PyObject *function, *arguments;
    if (!PyArg_ParseTuple(args, "siOO!", &kind, &index, &function, &PyTuple_Type, &arguments))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    struct silo_gpu_scope scope;
    if (device == NULL)
        return NULL;
    const int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return silo_gpu_error(device->gpu, "cannot make the device current", code), NULL;
    PyObject *result = PyObject_Call(function, arguments, NULL);
    silo_gpu_leave(&scope);
    return result;
}

PyMethodDef silo_gpu_methods[] = {
    {"gpu_open", py_open, METH_VARARGS,
     "gpu_open(kind, library=None) -> int\n\nOpen a driver ('cuda', 'hip') once; its devices."},
    {"gpu_attributes", py_attributes, METH_VARARGS,
     "gpu_attributes(kind, index) -> dict\n\nWhat the driver says of a device; no context is "
     "made."},
    {"gpu_capturing", py_capturing, METH_VARARGS,
     "gpu_capturing(kind, index, stream) -> bool\n\nWhether work on a stream is being captured."},
    {"gpu_locate", py_locate, METH_VARARGS,
     "gpu_locate(kind, address) -> (type, index)\n\nDLPack device of memory; (1, 0): the driver "
     "does "
     "not know it."},
    {"gpu_current", py_current, METH_VARARGS,
     "gpu_current(kind) -> int | None\n\nThe device current in this thread."},
    {"gpu_within", py_within, METH_VARARGS,
     "gpu_within(kind, index, function, arguments)\n\nCall a function with the context of a device "
     "current in this thread; what it returns."},
    {"gpu_synchronize", py_synchronize, METH_VARARGS,
     "gpu_synchronize(kind, index)\n\nWait for all work of a device."},
    {"gpu_free_memory", py_free_memory, METH_VARARGS,
     "gpu_free_memory(kind, index) -> int\n\nBytes of a device's memory that nobody holds."},
    {NULL, NULL, 0, NULL},
};
