#include "triton_bound.h"

#include "flat.h"
#include "locks.h"

static PyTypeObject *bound_type;

/* Owned memory of the last one, for the next owner[grid]; it holds its grid where that is plain. */
static struct silo_triton_bound *spare;
static silo_lock spare_lock;

static bool read_grid(PyObject *grid, int64_t dims[3]) {
    if (!PyTuple_Check(grid))
        return false;
    const Py_ssize_t size = PyTuple_Size(grid);
    if (size < 1 || size > 3)
        return false;
    dims[0] = dims[1] = dims[2] = 1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyTuple_GetItem(grid, i);
        int overflow;
        if (!PyLong_Check(item))
            return false;
        dims[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0 || dims[i] < 0)
            return false;
    }
    return true;
}

/* Free memory that holds at most a grid. */
static void drop(struct silo_triton_bound *bound) {
    if (bound != NULL) {
        Py_XDECREF(bound->grid);
        PyObject_GC_Del(bound);
    }
}

SILO_HOT PyObject *silo_triton_bind(PyObject *owner, PyObject *grid, vectorcallfunc call) {
    SILO_LOCK(&spare_lock);
    struct silo_triton_bound *bound = spare;
    spare = NULL;
    SILO_UNLOCK(&spare_lock);
    if (bound == NULL) {
        bound = PyObject_GC_New(struct silo_triton_bound, bound_type);
        if (bound == NULL)
            return NULL;
        Py_DECREF((PyObject *)bound_type); /* taken again below, as for a spare */
        bound->grid = NULL;
    }
    if (bound->grid != grid) { /* the same tuple of integers needs no reading */
        Py_XDECREF(bound->grid);
        bound->grid = Py_NewRef(grid);
        bound->plain = read_grid(grid, bound->dims);
    }
    PyObject_Init((PyObject *)bound, bound_type);
    bound->call = call;
    bound->owner = Py_NewRef(owner);
    bound->tracked = false;
    return (PyObject *)bound;
}

static int bound_traverse(PyObject *object, visitproc visit, void *arg) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(bound->owner);
    Py_VISIT(bound->grid);
    return 0;
}

static SILO_HOT void bound_dealloc(PyObject *object) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *owner = bound->owner;
    if (bound->tracked)
        PyObject_GC_UnTrack(object);
    if (!bound->plain || !PyTuple_CheckExact(bound->grid)) /* what it refers to is unknown */
        Py_CLEAR(bound->grid);
    SILO_LOCK(&spare_lock);
    struct silo_triton_bound *extra = spare;
    spare = bound;
    SILO_UNLOCK(&spare_lock);
    drop(extra);
    Py_DECREF(owner);
    Py_DECREF((PyObject *)type);
}

static PyObject *tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, ((struct silo_triton_bound *)self)->call);
}

int silo_triton_bound_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct silo_triton_bound, call), READONLY,
         NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)bound_dealloc},
        {Py_tp_traverse, (void *)bound_traverse},
        {Py_tp_call, (void *)tuple_call},
        {Py_tp_members, members},
        {Py_tp_doc, "A function, tuner or heuristics of Triton's with a grid: function[grid]."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.TritonBound",
        .basicsize = sizeof(struct silo_triton_bound),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    bound_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return bound_type != NULL ? PyModule_AddObjectRef(module, "TritonBound", (PyObject *)bound_type)
                              : -1;
}
