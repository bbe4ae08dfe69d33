#include "code.h"

#include "errors.h"
#include "gpu_device.h"

PyTypeObject *silo_cpu_module_type, *silo_gpu_module_type;

/* ---- making ---- */

/* Makes an object of a type for a binary, and steals the binary's reference. If `binary` is NULL,
 * raises `error`. */
static PyObject *wrap(PyTypeObject *type, struct silo_binary *binary, silo_error *error) {
    if (binary == NULL) {
        /* silo_raise chooses MemoryError if the host's memory ran out, and DeviceError with the
         * driver's text if the device's did. */
        if (error->code == SILO_ERROR_MEMORY)
            silo_raise(error);
        else
            silo_raise_as(silo_device_error, error);
        return NULL;
    }
    struct silo_code_object *self = (struct silo_code_object *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        self->binary = binary;
    else
        silo_binary_release(binary);
    return (PyObject *)self;
}

static struct silo_binary *load(struct silo_gpu_device *device, const Py_buffer *data,
                                const char *directory, silo_error *error) {
    struct silo_binary *binary;
    Py_BEGIN_ALLOW_THREADS binary =
        silo_binary_load(device, data->buf, (size_t)data->len, directory, error);
    Py_END_ALLOW_THREADS return binary;
}

static PyObject *cpu_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "directory", "address", NULL};
    Py_buffer data = {0};
    const char *directory = NULL;
    unsigned long long address = 0;
    silo_error error;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|y*z$K", names, &data, &directory, &address))
        return NULL;
    PyObject *self = NULL;
    if ((data.obj == NULL) == (address == 0))
        PyErr_SetString(PyExc_TypeError, "a CpuModule is made of bytes or of an address=");
    else if (address != 0)
        self = wrap(type, silo_binary_at((const void *)(uintptr_t)address, &error), &error);
    else
        self = wrap(type, load(NULL, &data, directory, &error), &error);
    PyBuffer_Release(&data);
    return self;
}

static PyObject *gpu_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"kind", "index", "data", "module", NULL};
    const char *kind;
    int index;
    Py_buffer data = {0};
    unsigned long long module = 0;
    silo_error error;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "si|y*$K", names, &kind, &index, &data,
                                     &module))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    PyObject *self = NULL;
    if (device != NULL && (data.obj == NULL) == (module == 0))
        PyErr_SetString(PyExc_TypeError, "a GpuModule is made of bytes or of a module=");
    else if (device != NULL && module != 0)
        self = wrap(type, silo_binary_of_module(device, (void *)(uintptr_t)module, &error), &error);
    else if (device != NULL)
        self = wrap(type, load(device, &data, NULL, &error), &error);
    PyBuffer_Release(&data);
    return self;
}

static void code_dealloc(PyObject *object) {
    struct silo_code_object *self = (struct silo_code_object *)object;
    struct silo_binary *binary = self->binary;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(object);
    if (silo_gpu_ending()) {
        silo_binary_release(binary);
    } else { /* the GIL is released, because the release may wait for a kernel that itself waits for
                a Python callback */
        Py_BEGIN_ALLOW_THREADS silo_binary_release(binary);
        Py_END_ALLOW_THREADS
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- the types ---- */

static PyObject *gpu_kind(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((struct silo_code_object *)object)->binary->device->gpu->name);
}

static PyObject *gpu_index(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromLong(((struct silo_code_object *)object)->binary->device->index);
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int silo_code_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct silo_code_object, weakrefs), READONLY,
         NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot cpu_slots[] = {
        {Py_tp_new, (void *)cpu_new},
        {Py_tp_dealloc, (void *)code_dealloc},
        {Py_tp_members, members},
        {Py_tp_doc,
         "CpuModule(data=None, directory=None, *, address=0)\n--\n\n"
         "A shared object mapped from bytes, or one function of this process by its address."},
        {0, NULL},
    };
    static PyType_Spec cpu_spec = {"silo._native.CpuModule", sizeof(struct silo_code_object), 0,
                                   Py_TPFLAGS_DEFAULT, cpu_slots};
    static PyGetSetDef gpu_getters[] = {
        {"kind", gpu_kind, NULL, "The driver: 'cuda' or 'hip'.", NULL},
        {"index", gpu_index, NULL, "The device's number.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot gpu_slots[] = {
        {Py_tp_new, (void *)gpu_new},
        {Py_tp_dealloc, (void *)code_dealloc},
        {Py_tp_members, members},
        {Py_tp_getset, gpu_getters},
        {Py_tp_doc,
         "GpuModule(kind, index, data=None, *, module=0)\n--\n\nA cubin, hsaco or PTX loaded on "
         "one device. It is unloaded after its last kernel is gone and the device has done its "
         "work; once captured into a graph it stays. A module= is the driver's handle of one that "
         "somebody else has loaded, keeps longer than this and unloads."},
        {0, NULL},
    };
    static PyType_Spec gpu_spec = {"silo._native.GpuModule", sizeof(struct silo_code_object), 0,
                                   Py_TPFLAGS_DEFAULT, gpu_slots};
    silo_cpu_module_type = add_type(module, "CpuModule", &cpu_spec);
    silo_gpu_module_type = add_type(module, "GpuModule", &gpu_spec);
    return silo_cpu_module_type && silo_gpu_module_type ? 0 : -1;
}
