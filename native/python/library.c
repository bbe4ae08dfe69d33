#include "library.h"

#include "errors.h"
#include "stack.h"

PyTypeObject *silo_library_type;

/* ---- running ---- */

/* Returns the value of a parameter: the caller's object or the default, else the config's value. It
 * is a new reference; NULL with an exception set. */
static PyObject *argument_of(const struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_binding *binding, int32_t index) {
    PyObject *object = inputs->arguments[index];
    if (object == NULL)
        object = PyDict_GetItemWithError(binding->config, self->plan.names[index]);
    if (object == NULL && PyErr_Occurred())
        return NULL;
    if (object == NULL)
        object = silo_absent;
    Py_INCREF(object);
    return object;
}

/* Returns the tuple (arguments, grid, stream); the stream is the caller's object, or None. */
static PyObject *make_call(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_binding *binding, const int64_t dims[3]) {
    PyObject *arguments = PyTuple_New(self->plan.count);
    for (int32_t i = 0; i < self->plan.count && arguments != NULL; i++) {
        PyObject *object = argument_of(self, inputs, binding, i);
        if (object == NULL || PyTuple_SetItem(arguments, i, object) != 0)
            Py_CLEAR(arguments);
    }
    if (arguments == NULL)
        return NULL;
    return Py_BuildValue("(N(LLL)O)", arguments, (long long)dims[0], (long long)dims[1],
                         (long long)dims[2], inputs->stream ? inputs->stream : Py_None);
}

int silo_library_run(const struct silo_launcher *self, const struct silo_inputs *inputs,
                     const struct silo_binding *binding, const int64_t dims[3],
                     PyObject **error_text) {
    const struct silo_loaded *loaded = binding->loaded;
    if (silo_stack_check() != 0)
        return -1;
    PyObject *function = ((struct silo_library *)loaded->module)->call;
    if (function == NULL) {
        PyErr_Format(silo_launch_error, "%U: its code was freed together with what calls it",
                     self->plan.kernel);
        return -1;
    }
    PyObject *call = make_call(self, inputs, binding, dims);
    if (call == NULL)
        return -1;
    Py_INCREF(function);
    PyObject *result = PyObject_Call(function, call, NULL);
    Py_DECREF(function);
    Py_DECREF(call);
    if (result == NULL) {
        silo_add_note("%U: raised by '%U' on %U; grid=(%lld, %lld, %lld), config %R",
                      self->plan.kernel, loaded->entry,
                      ((struct silo_library *)loaded->module)->kind, (long long)dims[0],
                      (long long)dims[1], (long long)dims[2], binding->config);
        return -1;
    }
    if (result != Py_None) { /* a library may return its results instead of writing to arguments */
        *error_text = result;
        return 1;
    }
    Py_DECREF(result);
    return 0;
}

void silo_library_function(PyObject *module, const struct silo_driver **driver,
                           struct silo_function *function) {
    const struct silo_library *library = (struct silo_library *)module;
    *driver = &library->driver;
    function->handle = NULL;
    function->memory_type = library->memory_type;
    function->device_index = library->device_index;
    for (int axis = 0; axis < 3; axis++) /* the ABI of CPU kernels has 32-bit grid dimensions; a
                                            library's code gets the same limit */
        function->grid_limit[axis] = UINT32_MAX;
}

/* ---- the type ---- */

/* Reads a tuple of DLPack device types: stores a bit for each, and the first type. */
static int read_memory(PyObject *types, uint32_t *bits, int32_t *first) {
    const Py_ssize_t count = PyTuple_Size(types);
    *bits = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const long type = PyLong_AsLong(PyTuple_GetItem(types, i));
        if (type < 1 || type > 31) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "there is no DLPack device type %ld", type);
            return -1;
        }
        *bits |= UINT32_C(1) << type;
        if (i == 0)
            *first = (int32_t)type;
    }
    return 0;
}

static PyObject *library_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"call", "kind", "index", "memory", NULL};
    PyObject *call, *kind, *memory;
    int index;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OUiO!", names, &call, &kind, &index,
                                     &PyTuple_Type, &memory))
        return NULL;
    if (!PyCallable_Check(call))
        return PyErr_Format(PyExc_TypeError, "the code of a library is a callable, not a %R",
                            Py_TYPE(call));
    const char *name = PyUnicode_AsUTF8AndSize(kind, NULL);
    uint32_t bits;
    int32_t first = 0;
    if (name == NULL || read_memory(memory, &bits, &first) != 0)
        return NULL;
    struct silo_library *self = (struct silo_library *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(call);
    self->call = call;
    Py_INCREF(kind);
    self->kind = kind;
    self->driver = (struct silo_driver){.name = name, .device_types = bits};
    self->memory_type = first;
    self->device_index = index;
    return (PyObject *)self;
}

static int library_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(((struct silo_library *)object)->call);
    return 0;
}

static int library_clear(PyObject *object) {
    Py_CLEAR(((struct silo_library *)object)->call);
    return 0;
}

static void library_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    library_clear(object);
    Py_XDECREF(((struct silo_library *)object)->kind);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

int silo_library_init(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)library_new},
        {Py_tp_dealloc, (void *)library_dealloc},
        {Py_tp_traverse, (void *)library_traverse},
        {Py_tp_clear, (void *)library_clear},
        {Py_tp_doc, "LibraryCode(call, kind, index, memory)\n--\n\n"
                    "Code that a library runs: call(arguments, grid, stream). It is for the device "
                    "kind:index, over memory of these DLPack device types."},
        {0, NULL},
    };
    static PyType_Spec spec = {"silo._native.LibraryCode", sizeof(struct silo_library), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    silo_library_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return silo_library_type
               ? PyModule_AddObjectRef(module, "LibraryCode", (PyObject *)silo_library_type)
               : -1;
}
