/* Loaded kernels, and the modules of the CPU that they are loaded from. */
#include "kernel.h"

#include "cpu_driver.h"
#include "dlpack.h"
#include "errors.h"
#include "gpu_module.h"
#include "library.h"

#include <stdlib.h>

PyTypeObject *silo_module_type;
PyTypeObject *silo_loaded_type;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* ---- modules: objects the CPU driver has mapped ---- */

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "directory", "address", NULL};
    Py_buffer data = {0};
    const char *directory = NULL;
    unsigned long long address = 0;
    char error[512];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|y*z$K", names, &data, &directory, &address))
        return NULL;
    if ((data.obj == NULL) == (address == 0)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_TypeError, "a CpuModule is made of bytes or of an address=");
        return NULL;
    }
    struct silo_module *self = (struct silo_module *)PyType_GenericAlloc(type, 0);
    if (self != NULL && address != 0) {
        self->function = (void *)(uintptr_t)address;
    } else if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS self->object =
            silo_cpu_open(data.buf, (size_t)data.len, directory, error, sizeof error);
        Py_END_ALLOW_THREADS if (self->object == NULL) {
            PyErr_Format(silo_device_error, "cannot load the CPU code (%zd bytes): %s", data.len,
                         error);
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&data);
    return (PyObject *)self;
}

static void module_dealloc(PyObject *object) {
    struct silo_module *self = (struct silo_module *)object;
    if (self->object != NULL)
        silo_cpu_close(self->object);
    free_object(object);
}

/* ---- loaded kernels ---- */

static int cpu_function(struct silo_module *module, const char *symbol,
                        struct silo_function *function) {
    char error[512];
    function->handle = module->object ? silo_cpu_symbol(module->object, symbol, error, sizeof error)
                                      : module->function;
    if (function->handle == NULL) {
        PyErr_Format(silo_device_error, "%s", error);
        return -1;
    }
    function->memory_type = SILO_DEVICE_CPU;
    /* The kernel ABI has 32-bit dimensions; their product is checked to 63 bits. */
    for (int axis = 0; axis < 3; axis++)
        function->grid_limit[axis] = UINT32_MAX;
    return 0;
}

static int resolve_function(struct silo_loaded *self) {
    const char *symbol = PyUnicode_AsUTF8AndSize(self->entry, NULL);
    if (symbol == NULL)
        return -1;
    if (Py_TYPE(self->module) == silo_module_type) {
        self->driver = &silo_cpu_driver;
        self->function.name = PyUnicode_AsUTF8AndSize(self->name, NULL); /* lives with `name` */
        if (self->function.name == NULL)
            return -1;
        return cpu_function((struct silo_module *)self->module, symbol, &self->function);
    }
    if (Py_TYPE(self->module) == silo_library_type) {
        silo_library_function(self->module, &self->driver, &self->function);
        return 0;
    }
    struct silo_gpu_module *module = (struct silo_gpu_module *)self->module;
    self->driver = module->device->gpu->driver;
    return silo_gpu_function(module, self->name, symbol, &self->function);
}

/* No driver takes more threads along an axis than the struct holds. */
static int set_block(struct silo_function *function, PyObject *kernel, const long long block[3]) {
    for (int axis = 0; axis < 3; axis++) {
        if (block[axis] < 1 || block[axis] > UINT16_MAX) {
            PyErr_Format(silo_device_error,
                         "%U: a block of %lld x %lld x %lld threads cannot be; there are 1 to %d "
                         "along each axis",
                         kernel, block[0], block[1], block[2], UINT16_MAX);
            return -1;
        }
        function->block[axis] = (uint16_t)block[axis];
    }
    return 0;
}

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"module",        "entry",         "name",          "block",
                            "cluster",       "shared_bytes",  "scratch_bytes", "scratch_align",
                            "profile_bytes", "profile_align", "chunk",         "threads",
                            "together",      "cooperative",   "pdl",           NULL};
    PyObject *module, *entry, *name = NULL;
    unsigned long long scratch = 0, profile = 0;
    long long block[3] = {1, 1, 1};
    struct silo_function asked = {
        .cluster = {1, 1, 1}, .scratch_align = 1, .profile_align = 1, .cpu_together = 1024};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OU|U$(LLL)(III)IKIKIIIIpp", names, &module,
                                     &entry, &name, &block[0], &block[1], &block[2],
                                     &asked.cluster[0], &asked.cluster[1], &asked.cluster[2],
                                     &asked.shared_bytes, &scratch, &asked.scratch_align, &profile,
                                     &asked.profile_align, &asked.cpu_chunk, &asked.cpu_threads,
                                     &asked.cpu_together, &asked.cooperative, &asked.pdl))
        return NULL;
    if (Py_TYPE(module) != silo_module_type && Py_TYPE(module) != silo_gpu_module_type &&
        Py_TYPE(module) != silo_library_type)
        return PyErr_Format(PyExc_TypeError,
                            "a kernel is loaded from a CpuModule, a GpuModule or a LibraryCode, "
                            "not a %R",
                            Py_TYPE(module));
    if (set_block(&asked, name ? name : entry, block) != 0)
        return NULL;
    asked.scratch_bytes = scratch;
    asked.profile_bytes = profile;
    struct silo_loaded *self = (struct silo_loaded *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(module);
    self->module = module;
    Py_INCREF(entry);
    self->entry = entry;
    self->name = name ? name : entry;
    Py_INCREF(self->name);
    self->function = asked;
    if (resolve_function(self) != 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int loaded_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(((struct silo_loaded *)object)->module); /* code of a library may lead back here */
    return 0;
}

static void loaded_dealloc(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->name);
    Py_XDECREF(self->module); /* last: the function lies in it */
    free_object(object);
}

static PyObject *loaded_repr(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    return PyUnicode_FromFormat("<LoadedKernel '%U' on %s>", self->entry, self->driver->name);
}

static PyObject *loaded_parameters(PyObject *object, void *closure) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    (void)closure;
    if (Py_TYPE(self->module) != silo_gpu_module_type)
        Py_RETURN_NONE;
    return silo_gpu_parameters((struct silo_gpu_module *)self->module, &self->function);
}

static PyObject *loaded_driver(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((struct silo_loaded *)object)->driver->name);
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int silo_loaded_init(PyObject *module) {
    static PyType_Slot module_slots[] = {
        {Py_tp_new, (void *)module_new},
        {Py_tp_dealloc, (void *)module_dealloc},
        {Py_tp_doc,
         "CpuModule(data=None, directory=None, *, address=0)\n--\n\n"
         "A shared object mapped from bytes, or one function of this process by its address."},
        {0, NULL},
    };
    static PyType_Spec module_spec = {"silo._native.CpuModule", sizeof(struct silo_module), 0,
                                      Py_TPFLAGS_DEFAULT, module_slots};
    static PyMemberDef loaded_members[] = {
        {"entry", T_OBJECT_EX, offsetof(struct silo_loaded, entry), READONLY,
         "The symbol that runs."},
        {"name", T_OBJECT_EX, offsetof(struct silo_loaded, name), READONLY, "The kernel's name."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef loaded_getters[] = {
        {"driver", loaded_driver, NULL, "The driver's name.", NULL},
        {"parameters", loaded_parameters, NULL,
         "Offset and size of each parameter, as the GPU driver says; None where it says nothing.",
         NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot loaded_slots[] = {
        {Py_tp_new, (void *)loaded_new},
        {Py_tp_dealloc, (void *)loaded_dealloc},
        {Py_tp_traverse, (void *)loaded_traverse},
        {Py_tp_repr, (void *)loaded_repr},
        {Py_tp_members, loaded_members},
        {Py_tp_getset, loaded_getters},
        {Py_tp_doc,
         "LoadedKernel(module, entry, name=entry, *, block=(1, 1, 1), cluster=(1, 1, 1), "
         "shared_bytes=0, scratch_bytes=0, scratch_align=1, profile_bytes=0, "
         "profile_align=1, chunk=0, threads=0, together=1024, cooperative=False, pdl=False)\n--\n\n"
         "A kernel handed to a driver; keeps its module loaded."},
        {0, NULL},
    };
    static PyType_Spec loaded_spec = {"silo._native.LoadedKernel", sizeof(struct silo_loaded), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, loaded_slots};
    silo_module_type = add_type(module, "CpuModule", &module_spec);
    silo_loaded_type = add_type(module, "LoadedKernel", &loaded_spec);
    return silo_module_type && silo_loaded_type ? 0 : -1;
}
