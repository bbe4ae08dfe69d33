/* Loaded kernels: functions of loaded code, with the settings of their launches. */
#include "loaded.h"

#include "code.h"
#include "errors.h"
#include "library.h"

#include <stdlib.h>

PyTypeObject *silo_loaded_type;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* Finds the function in a driver's or a library's module; its launch parameters are already set. */
static int resolve_function(struct silo_loaded *self) {
    if (Py_TYPE(self->module) == silo_library_type) {
        silo_library_function(self->module, &self->driver, &self->function);
        return 0;
    }
    /* Both texts live as long as their objects, and the function keeps a pointer to the name. */
    const char *symbol = PyUnicode_AsUTF8AndSize(self->entry, NULL);
    const char *name = PyUnicode_AsUTF8AndSize(self->name, NULL);
    if (symbol == NULL || name == NULL)
        return -1;
    silo_error error;
    int result;
    self->binary = ((struct silo_code_object *)self->module)->binary;
    self->driver = self->binary->driver;
    Py_BEGIN_ALLOW_THREADS result =
        silo_binary_function(self->binary, name, symbol, &self->function, &error);
    Py_END_ALLOW_THREADS return result == 0 ? 0 : silo_raise_as(silo_device_error, &error);
}

static int set_block(struct silo_function *function, PyObject *kernel, const long long block[3]) {
    const int64_t dims[3] = {block[0], block[1], block[2]};
    const char *name = PyUnicode_AsUTF8AndSize(kernel, NULL);
    silo_error error;
    if (name == NULL)
        return -1;
    return silo_function_set_block(function, name, dims, &error) == 0
               ? 0
               : silo_raise_as(silo_device_error, &error);
}

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"module",        "entry",         "name",
                            "block",         "cluster",       "shared_bytes",
                            "scratch_bytes", "scratch_align", "profile_bytes",
                            "profile_align", "chunk",         "threads",
                            "work",          "together",      "cooperative",
                            "pdl",           "counts_blocks", NULL};
    PyObject *module, *entry, *name = NULL;
    unsigned long long scratch = 0, profile = 0;
    long long block[3] = {1, 1, 1};
    struct silo_function function = {
        .cluster = {1, 1, 1}, .scratch_align = 1, .profile_align = 1, .cpu_together = 1024};
    int counts_blocks = 0;
    unsigned work = 0;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "OU|U$(LLL)(III)IKIKIIIIIppp", names, &module, &entry, &name, &block[0],
            &block[1], &block[2], &function.cluster[0], &function.cluster[1], &function.cluster[2],
            &function.shared_bytes, &scratch, &function.scratch_align, &profile,
            &function.profile_align, &function.cpu_chunk, &function.cpu_threads, &work,
            &function.cpu_together, &function.cooperative, &function.pdl, &counts_blocks))
        return NULL;
    if (Py_TYPE(module) != silo_cpu_module_type && Py_TYPE(module) != silo_gpu_module_type &&
        Py_TYPE(module) != silo_library_type)
        return PyErr_Format(PyExc_TypeError,
                            "a kernel is loaded from a CpuModule, a GpuModule or a LibraryCode, "
                            "not a %R",
                            Py_TYPE(module));
    if (set_block(&function, name ? name : entry, block) != 0)
        return NULL;
    function.scratch_bytes = scratch;
    function.cost = 16 * (uint64_t)work;
    function.profile_bytes = profile;
    function.counts_blocks = (uint32_t)counts_blocks;
    struct silo_loaded *self = (struct silo_loaded *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(module);
    self->module = module;
    Py_INCREF(entry);
    self->entry = entry;
    self->name = name ? name : entry;
    Py_INCREF(self->name);
    self->function = function;
    if (resolve_function(self) != 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int loaded_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(object));
    /* A library's callable may be part of a reference cycle. */
    Py_VISIT(((struct silo_loaded *)object)->module);
    return 0;
}

static void loaded_dealloc(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->name);
    Py_XDECREF(self->module); /* last, because the module contains the function */
    free_object(object);
}

static PyObject *loaded_repr(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    return PyUnicode_FromFormat("<LoadedKernel '%U' on %s>", self->entry, self->driver->name);
}

static PyObject *loaded_parameters(PyObject *object, void *closure) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    (void)closure;
    struct silo_parameter_place few[SILO_MAX_PARAMETERS], *places = few;
    if (self->binary == NULL)
        Py_RETURN_NONE;
    int64_t count = silo_binary_places(self->binary, &self->function, few, SILO_MAX_PARAMETERS);
    if (count > SILO_MAX_PARAMETERS) {
        places = malloc((size_t)count * sizeof *places); /* freed below */
        if (places == NULL)
            return PyErr_NoMemory();
        count = silo_binary_places(self->binary, &self->function, places, (size_t)count);
    }
    PyObject *tuple = count >= 0 ? PyTuple_New((Py_ssize_t)count) : Py_NewRef(Py_None);
    for (int64_t i = 0; i < count && tuple != NULL; i++) {
        PyObject *pair =
            Py_BuildValue("(nn)", (Py_ssize_t)places[i].offset, (Py_ssize_t)places[i].size);
        if (pair == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, pair) != 0)
            Py_CLEAR(tuple);
    }
    if (places != few)
        free(places);
    return tuple;
}

static PyObject *loaded_driver(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((struct silo_loaded *)object)->driver->name);
}

static PyObject *loaded_device(PyObject *object, void *closure) {
    const struct silo_function *function = &((struct silo_loaded *)object)->function;
    (void)closure;
    return Py_BuildValue("(ii)", (int)function->memory_type, (int)function->device_index);
}

int silo_loaded_init(PyObject *module) {
    static PyMemberDef loaded_members[] = {
        {"entry", T_OBJECT_EX, offsetof(struct silo_loaded, entry), READONLY,
         "The symbol that runs."},
        {"name", T_OBJECT_EX, offsetof(struct silo_loaded, name), READONLY, "The kernel's name."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef loaded_getters[] = {
        {"driver", loaded_driver, NULL, "The driver's name.", NULL},
        {"device", loaded_device, NULL, "DLPack's type of its device's memory, and the index.",
         NULL},
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
         "profile_align=1, chunk=0, threads=0, together=1024, cooperative=False, pdl=False, "
         "counts_blocks=False)\n--\n\n"
         "A kernel handed to a driver; keeps its module loaded."},
        {0, NULL},
    };
    static PyType_Spec loaded_spec = {"silo._native.LoadedKernel", sizeof(struct silo_loaded), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, loaded_slots};
    silo_loaded_type = (PyTypeObject *)PyType_FromSpec(&loaded_spec);
    return silo_loaded_type
               ? PyModule_AddObjectRef(module, "LoadedKernel", (PyObject *)silo_loaded_type)
               : -1;
}
