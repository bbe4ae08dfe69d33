#include "triton_run.h"

#include "flat.h"

struct silo_triton_run {
    PyObject_HEAD vectorcallfunc call;
    silo_triton_run_function run;
    PyTypeObject *kind; /* owned */
};

static PyTypeObject *run_type;

static PyObject *run_call(PyObject *self, PyObject *const *arguments, size_t flagged,
                          PyObject *names) {
    const struct silo_triton_run *method = (struct silo_triton_run *)self;
    const Py_ssize_t positional = (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
    if (positional == 0 || !PyObject_TypeCheck(arguments[0], method->kind))
        return PyErr_Format(PyExc_TypeError, "run needs a %R as its first argument, got %R",
                            (PyObject *)method->kind,
                            positional == 0 ? Py_None : (PyObject *)Py_TYPE(arguments[0]));
    return method->run(arguments[0], arguments + 1, positional - 1, names);
}

static PyObject *tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, run_call);
}

static SILO_HOT PyObject *run_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object == NULL || object == Py_None
               ? Py_NewRef(self)
               : silo_triton_bind_run(object, ((struct silo_triton_run *)self)->run);
}

PyObject *silo_triton_run_new(PyTypeObject *kind, silo_triton_run_function run) {
    struct silo_triton_run *run_object = (struct silo_triton_run *)PyType_GenericAlloc(run_type, 0);
    if (run_object == NULL)
        return NULL;
    run_object->call = run_call;
    run_object->run = run;
    run_object->kind = (PyTypeObject *)Py_NewRef((PyObject *)kind);
    return (PyObject *)run_object;
}

/* Pickles the method by reference, as the class's attribute `run`. */
static PyObject *run_reduce(PyObject *self, PyObject *protocol) {
    (void)protocol;
    PyObject *builtins = PyImport_ImportModule("builtins");
    PyObject *getter = builtins != NULL ? PyObject_GetAttrString(builtins, "getattr") : NULL;
    Py_XDECREF(builtins);
    return getter != NULL
               ? Py_BuildValue("(N(Os))", getter, ((struct silo_triton_run *)self)->kind, "run")
               : NULL;
}

static int run_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT((PyObject *)((struct silo_triton_run *)object)->kind);
    return 0;
}

static void run_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)((struct silo_triton_run *)object)->kind);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *run_name(PyObject *self, void *closure) {
    (void)self, (void)closure;
    return PyUnicode_FromString("run");
}

int silo_triton_run_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct silo_triton_run, call), READONLY,
         NULL},
        {"__objclass__", T_OBJECT, offsetof(struct silo_triton_run, kind), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef attributes[] = {
        {"__name__", run_name, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMethodDef methods[] = {
        {"__reduce_ex__", run_reduce, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)run_dealloc},
        {Py_tp_traverse, (void *)run_traverse},
        {Py_tp_call, (void *)tuple_call},
        {Py_tp_descr_get, (void *)run_get},
        {Py_tp_members, members},
        {Py_tp_getset, attributes},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Launch, through Silo where Silo serves such launches."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.TritonRun",
        .basicsize = sizeof(struct silo_triton_run),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                 Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    run_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return run_type != NULL ? PyModule_AddObjectRef(module, "TritonRun", (PyObject *)run_type) : -1;
}
