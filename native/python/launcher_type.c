#include "launcher_type.h"

#include "binding.h"
#include "bound.h"
#include "errors.h"
#include "flat.h"
#include "launcher_arrange.h"
#include "miss.h"
#include "watch.h"

PyTypeObject *silo_launcher_type;

static SILO_HOT PyObject *launcher_call(PyObject *self, PyObject *const *arguments, size_t flagged,
                                        PyObject *names) {
    const Py_ssize_t positional = (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
    return silo_launcher_invoke((struct silo_launcher *)self, NULL, arguments, positional, names);
}

static SILO_HOT PyObject *launcher_subscript(PyObject *self, PyObject *grid) {
    return silo_bound_new((struct silo_launcher *)self, grid);
}

static PyObject *launcher_tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, launcher_call);
}

static PyObject *launcher_resolve(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_launcher_examine((struct silo_launcher *)self, args, keywords, SILO_MODE_RESOLVE);
}

static PyObject *launcher_inspect(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_launcher_examine((struct silo_launcher *)self, args, keywords, SILO_MODE_INSPECT);
}

static PyObject *launcher_forget(PyObject *object, PyObject *unused) {
    (void)unused;
    struct silo_launcher *self = (struct silo_launcher *)object;
    silo_binding_table_clear(&self->bindings);
    PyDict_Clear(self->constants);
    Py_RETURN_NONE;
}

static PyObject *launcher_watch(PyObject *object, PyObject *args) {
    struct silo_launcher *self = (struct silo_launcher *)object;
    PyObject *watched, *on_change;
    if (!PyArg_ParseTuple(args, "OO", &watched, &on_change) || !silo_watch_check(watched))
        return NULL;
    const bool is_held = self->route == SILO_ROUTE_HELD && self->fixed == NULL;
    if (!is_held && self->route != SILO_ROUTE_GUARDED && self->route != SILO_ROUTE_WATCHED)
        return PyErr_Format(PyExc_TypeError, "only launchers with a guard watch places");
    SILO_LOCK(&self->lock);
    PyObject *old_places = self->watched, *old_change = self->on_change;
    self->watched = Py_NewRef(watched);
    self->on_change = Py_NewRef(on_change);
    if (!is_held)
        self->route = PyTuple_Size(watched) != 0 ? SILO_ROUTE_WATCHED : SILO_ROUTE_GUARDED;
    SILO_UNLOCK(&self->lock);
    Py_XDECREF(old_places);
    Py_XDECREF(old_change);
    Py_RETURN_NONE;
}

static int set_grid(struct silo_launcher *self, PyObject *grid) {
    if (grid == Py_None)
        return 0;
    if (PyCallable_Check(grid))
        self->grid.callable = grid;
    else if (silo_grid_parse(self->plan.kernel, grid, self->grid.dims) != 0)
        return -1;
    Py_INCREF(grid);
    self->grid_object = self->grid.object = grid;
    return 0;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"name",      "parameters",  "options", "on_miss",
                            "grid",      "release_gil", "fixed",   "extents",
                            "grid_held", "on_unread",   "triton",  NULL};
    PyObject *name, *parameters, *options, *on_miss, *grid = Py_None, *fixed = Py_None;
    PyObject *on_unread = Py_None;
    PyObject *extents = NULL;
    int release_gil = 1, grid_held = 0, triton = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO!O!O|O$pOO!pOp", names, &name,
                                     &PyTuple_Type, &parameters, &PyTuple_Type, &options, &on_miss,
                                     &grid, &release_gil, &fixed, &PyTuple_Type, &extents,
                                     &grid_held, &on_unread, &triton))
        return NULL;
    if (fixed != Py_None && !PyObject_TypeCheck(fixed, silo_binding_type))
        return PyErr_Format(PyExc_TypeError, "fixed is a Binding or None");
    if (fixed == Py_None && !PyCallable_Check(on_miss))
        return PyErr_Format(PyExc_TypeError, "on_miss is a callable");
    struct silo_launcher *self = (struct silo_launcher *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = launcher_call;
    self->release_gil = release_gil != 0;
    self->constants = PyDict_New();
    Py_INCREF(on_miss);
    self->on_miss = on_miss;
    if (on_unread != Py_None) {
        Py_INCREF(on_unread);
        self->on_unread = on_unread;
    }
    if (fixed != Py_None) {
        Py_INCREF(fixed);
        self->fixed = (struct silo_binding *)fixed;
        self->route = SILO_ROUTE_FIXED;
    }
    if (self->constants == NULL || silo_plan_init(&self->plan, name, parameters, options) != 0 ||
        silo_extents_init(&self->extents, &self->plan, extents, grid_held != 0) != 0 ||
        set_grid(self, grid) != 0 ||
        (self->fixed != NULL && silo_binding_check_plan(self, self->fixed) != 0)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (self->extents.some)
        self->route = SILO_ROUTE_HELD;
    if (triton) {
        self->plan.word_warmup = PyUnicode_InternFromString("warmup");
        if (self->plan.word_warmup == NULL || self->route != SILO_ROUTE_GUARDED) {
            Py_DECREF((PyObject *)self);
            return PyErr_Format(PyExc_ValueError, "Triton's launches hold no extents");
        }
        self->route = SILO_ROUTE_TRITON;
    }
    return (PyObject *)self;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg) {
    struct silo_launcher *self = (struct silo_launcher *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(self->on_miss);
    Py_VISIT(self->on_unread);
    Py_VISIT(self->watched);
    Py_VISIT(self->on_change);
    Py_VISIT(self->grid_object);
    Py_VISIT((PyObject *)self->fixed);
    Py_VISIT(self->constants);
    for (int32_t i = 0; i < self->plan.count; i++)
        Py_VISIT(self->plan.defaults[i]);
    return silo_binding_table_traverse(&self->bindings, visit, arg);
}

static int launcher_clear(PyObject *object) {
    struct silo_launcher *self = (struct silo_launcher *)object;
    /* on_miss becomes None instead of NULL, because another object's finalizer may still call the
     * launcher. */
    PyObject *on_miss = self->on_miss;
    Py_INCREF(Py_None);
    self->on_miss = Py_None;
    Py_XDECREF(on_miss);
    Py_CLEAR(self->on_unread);
    Py_CLEAR(self->on_change);
    Py_CLEAR(self->watched);
    silo_binding_table_clear(&self->bindings);
    if (self->constants != NULL)
        PyDict_Clear(self->constants);
    self->grid.callable = self->grid.object = NULL;
    Py_CLEAR(self->grid_object);
    return 0;
}

static void launcher_dealloc(PyObject *object) {
    struct silo_launcher *self = (struct silo_launcher *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    silo_binding_table_clear(&self->bindings);
    for (uint32_t i = 0; i < self->form_count; i++)
        silo_form_free(self->forms[i]);
    silo_extents_clear(&self->extents);
    silo_plan_clear(&self->plan);
    Py_XDECREF(self->on_miss);
    Py_XDECREF(self->on_unread);
    Py_XDECREF(self->watched);
    Py_XDECREF(self->on_change);
    Py_XDECREF(self->grid_object);
    Py_XDECREF((PyObject *)self->fixed);
    Py_XDECREF(self->constants);
    silo_bound_drop_spare(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *launcher_repr(PyObject *object) {
    return PyUnicode_FromFormat("<Launcher of %U>", ((struct silo_launcher *)object)->plan.kernel);
}

static PyObject *launcher_name(PyObject *object, void *closure) {
    (void)closure;
    PyObject *name = ((struct silo_launcher *)object)->plan.kernel;
    Py_INCREF(name);
    return name;
}

static PyObject *launcher_bindings(PyObject *object, void *closure) {
    (void)closure;
    return silo_binding_table_list(&((struct silo_launcher *)object)->bindings);
}

int silo_launcher_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct silo_launcher, call), READONLY, NULL},
        {"misses", T_ULONGLONG, offsetof(struct silo_launcher, misses), READONLY,
         "How often on_miss was asked."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef getters[] = {
        {"name", launcher_name, NULL, "The kernel's name.", NULL},
        {"bindings", launcher_bindings, NULL, "The bindings in the guard table, one an entry.",
         NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMethodDef methods[] = {
        {"resolve", (PyCFunction)(void (*)(void))launcher_resolve, METH_VARARGS | METH_KEYWORDS,
         "The binding a call with these arguments uses, made if need be; launches nothing."},
        {"inspect", (PyCFunction)(void (*)(void))launcher_inspect, METH_VARARGS | METH_KEYWORDS,
         "(facts, arguments, options, device) of a call; asks nobody and launches nothing."},
        {"forget", launcher_forget, METH_NOARGS,
         "Empty the guard table: every next call asks on_miss again."},
        {"watch", launcher_watch, METH_VARARGS,
         "watch(places, on_change): each call looks at (holder, name, value, ...) first, and calls "
         "on_change where a value is another."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)launcher_new},
        {Py_tp_dealloc, (void *)launcher_dealloc},
        {Py_tp_traverse, (void *)launcher_traverse},
        {Py_tp_clear, (void *)launcher_clear},
        {Py_tp_call, (void *)launcher_tuple_call},
        {Py_tp_repr, (void *)launcher_repr},
        {Py_mp_subscript, (void *)launcher_subscript},
        {Py_tp_members, members},
        {Py_tp_getset, getters},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Launcher(name, parameters, options, on_miss, grid=None, *, release_gil=True, "
                    "fixed=None, extents=(), grid_held=False, on_unread=None)\n--\n\n"
                    "What calls of one kernel go through."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.Launcher",
        .basicsize = sizeof(struct silo_launcher),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
        .slots = slots,
    };
    silo_launcher_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (silo_launcher_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Launcher", (PyObject *)silo_launcher_type);
}
