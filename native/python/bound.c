#include "bound.h"

#include "flat.h"
#include "launcher_arrange.h"

static PyTypeObject *bound_type;

static SILO_HOT PyObject *bound_call(PyObject *self, PyObject *const *arguments, size_t flagged,
                                     PyObject *names) {
    struct silo_bound *bound = (struct silo_bound *)self;
    if (SILO_UNLIKELY(!bound->tracked && Py_REFCNT(self) > 1)) {
        bound->tracked = true;
        PyObject_GC_Track(self);
    }
    const Py_ssize_t positional = (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
    return silo_launcher_invoke(bound->launcher, &bound->grid, arguments, positional, names);
}

/* Frees a launcher's spare: the memory of a freed Bound, which owns nothing but a reference to its
 * grid. */
static void drop(struct silo_bound *spare) {
    if (spare != NULL) {
        Py_XDECREF(spare->grid_object);
        PyObject_GC_Del(spare);
    }
}

/* Returns whether a grid is an int or a tuple of ints: it cannot change, and no reference cycle can
 * run through it. */
static bool is_plain(PyObject *grid) {
    if (!PyTuple_CheckExact(grid))
        return PyLong_CheckExact(grid);
    for (Py_ssize_t i = PyTuple_Size(grid) - 1; i >= 0; i--) {
        if (!PyLong_CheckExact(PyTuple_GetItem(grid, i)))
            return false;
    }
    return true;
}

SILO_HOT PyObject *silo_bound_new(struct silo_launcher *launcher, PyObject *grid) {
    SILO_LOCK(&launcher->lock);
    struct silo_bound *bound = launcher->spare;
    launcher->spare = NULL;
    SILO_UNLOCK(&launcher->lock);
    /* The spare keeps a plain grid: if the same object is given again, it need not be parsed. */
    if (bound == NULL || bound->grid_object != grid) {
        struct silo_grid_source source = {NULL, grid, {1, 1, 1}};
        if (PyCallable_Check(grid)) {
            source.callable = grid;
        } else if (silo_grid_parse(launcher->plan.kernel, grid, source.dims) != 0) {
            drop(bound);
            return NULL;
        }
        if (bound == NULL) {
            bound = PyObject_GC_New(struct silo_bound, bound_type);
            if (bound == NULL)
                return NULL;
            /* PyObject_GC_New took a reference to the type. It is dropped, because PyObject_Init
             * below takes one, both for new memory and for a spare. */
            Py_DECREF((PyObject *)bound_type);
        } else {
            Py_XDECREF(bound->grid_object);
        }
        bound->grid = source;
        Py_INCREF(grid);
        bound->grid_object = grid;
    }
    PyObject_Init((PyObject *)bound, bound_type);
    bound->call = bound_call;
    Py_INCREF((PyObject *)launcher);
    bound->launcher = launcher;
    /* In `k[grid](...)` the Bound lives only as long as the call, so the garbage collector does not
     * track it yet. The call makes the collector track the Bound if something else also refers to
     * it. */
    bound->tracked = false;
    return (PyObject *)bound;
}

void silo_bound_drop_spare(struct silo_launcher *launcher) {
    drop(launcher->spare);
    launcher->spare = NULL;
}

static int bound_traverse(PyObject *self, visitproc visit, void *arg) {
    struct silo_bound *bound = (struct silo_bound *)self;
    Py_VISIT((PyObject *)Py_TYPE(self));
    Py_VISIT((PyObject *)bound->launcher);
    Py_VISIT(bound->grid_object);
    return 0;
}

/* There is no tp_clear: a Bound never changes, and every cycle through a Bound runs through its
 * launcher, whose tp_clear breaks the cycle. */

static SILO_HOT void bound_dealloc(PyObject *self) {
    struct silo_bound *bound = (struct silo_bound *)self;
    PyTypeObject *type = Py_TYPE(self);
    struct silo_launcher *launcher = bound->launcher;
    if (bound->tracked)
        PyObject_GC_UnTrack(self);
    if (!is_plain(bound->grid_object))
        Py_CLEAR(bound->grid_object);
    /* The memory becomes the launcher's spare for the next `k[grid]`; the spare and the launcher
     * hold no references to each other. */
    SILO_LOCK(&launcher->lock);
    struct silo_bound *extra = launcher->spare;
    launcher->spare = bound;
    SILO_UNLOCK(&launcher->lock);
    drop(extra);
    Py_DECREF((PyObject *)launcher); /* may free the launcher, and with it the spare */
    Py_DECREF((PyObject *)type);
}

static PyObject *bound_tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, bound_call);
}

static PyObject *bound_repr(PyObject *self) {
    struct silo_bound *bound = (struct silo_bound *)self;
    return PyUnicode_FromFormat("<%U[%R]>", bound->launcher->plan.kernel, bound->grid_object);
}

int silo_bound_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct silo_bound, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)bound_dealloc},
        {Py_tp_traverse, (void *)bound_traverse},
        {Py_tp_call, (void *)bound_tuple_call},
        {Py_tp_repr, (void *)bound_repr},
        {Py_tp_members, members},
        {Py_tp_doc, "A launcher with a grid: kernel[grid]."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.Bound",
        .basicsize = sizeof(struct silo_bound),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    bound_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return bound_type ? PyModule_AddObjectRef(module, "Bound", (PyObject *)bound_type) : -1;
}
