#include "triton_bound.h"

#include "canonical_names.h"
#include "flat.h"
#include "locks.h"
#include "stand_in.h"

#define FEW_VALUES 96 /* the most values of a call that fit on its stack */

static PyTypeObject *bound_type;

/* Owned memory of freed objects: the next owner[grid] reuses `spare` (with its grid, if that is
 * plain), and the next owner.run reuses `spare_run`. */
static struct silo_triton_bound *spare, *spare_run;
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
        if (!PyLong_Check(item) && silo_stood_for(item) != NULL)
            item = silo_stood_for(item);
        if (!PyLong_Check(item))
            return false;
        dims[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow != 0 || dims[i] < 0)
            return false;
    }
    return true;
}

/* Frees memory that owns nothing but a grid. */
static void drop(struct silo_triton_bound *bound) {
    if (bound != NULL) {
        Py_XDECREF(bound->grid);
        PyObject_GC_Del(bound);
    }
}

/* Returns spare memory, which refers to nothing but its grid, or new memory if there is none; NULL
 * if memory runs out. */
SILO_INLINE struct silo_triton_bound *take_spare(struct silo_triton_bound **slot) {
    SILO_LOCK(&spare_lock);
    struct silo_triton_bound *bound = *slot;
    *slot = NULL;
    SILO_UNLOCK(&spare_lock);
    if (bound == NULL) {
        bound = PyObject_GC_New(struct silo_triton_bound, bound_type);
        if (bound == NULL)
            return NULL;
        Py_DECREF((PyObject *)bound_type); /* PyObject_GC_New took a reference to the type; it is
                                              dropped, because PyObject_Init later takes one, both
                                              for new memory and for a spare */
        bound->grid = NULL;
    }
    return bound;
}

SILO_INLINE PyObject *begin(struct silo_triton_bound *bound, PyObject *owner, vectorcallfunc call,
                            silo_triton_run_function run) {
    PyObject_Init((PyObject *)bound, bound_type);
    bound->call = call;
    bound->run = run;
    bound->owner = Py_NewRef(owner);
    bound->tracked = false;
    return (PyObject *)bound;
}

SILO_HOT PyObject *silo_triton_bind(PyObject *owner, PyObject *grid, vectorcallfunc call) {
    struct silo_triton_bound *bound = take_spare(&spare);
    if (SILO_UNLIKELY(bound == NULL))
        return NULL;
    if (bound->grid != grid) { /* the same tuple of integers need not be read again */
        Py_XDECREF(bound->grid);
        bound->grid = Py_NewRef(grid);
        bound->plain = read_grid(grid, bound->dims);
    }
    return begin(bound, owner, call, NULL);
}

SILO_HOT PyObject *silo_triton_bind_run(PyObject *owner, silo_triton_run_function run) {
    struct silo_triton_bound *bound = take_spare(&spare_run);
    return SILO_LIKELY(bound != NULL) ? begin(bound, owner, NULL, run) : NULL;
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
    struct silo_triton_bound **slot = bound->grid != NULL ? &spare : &spare_run;
    if (bound->grid != NULL && (!bound->plain || !PyTuple_CheckExact(bound->grid)))
        Py_CLEAR(bound->grid); /* the grid may refer to any object */
    SILO_LOCK(&spare_lock);
    struct silo_triton_bound *extra = *slot;
    *slot = bound;
    SILO_UNLOCK(&spare_lock);
    drop(extra);
    Py_DECREF(owner);
    Py_DECREF((PyObject *)type);
}

static SILO_NOINLINE PyObject *run_many(const struct silo_triton_bound *bound, PyObject *args,
                                        PyObject *keywords) {
    struct silo_flat flat;
    PyObject *result = NULL;
    if (silo_flat_make(&flat, args, keywords) == 0)
        result = bound->run(bound->owner, flat.values, flat.positional, flat.names);
    silo_flat_free(&flat);
    return result;
}

/* Implements owner.run(*args, **keywords), as tuners call it. CPython makes a tuple and a
 * dictionary for this call in any case; a vectorcall function would also get an array and a tuple
 * of names. */
static SILO_HOT PyObject *run_few(const struct silo_triton_bound *bound, PyObject *args,
                                  PyObject *keywords) {
    const Py_ssize_t positional = PyTuple_Size(args), named = keywords ? PyDict_Size(keywords) : 0;
    if (SILO_UNLIKELY(positional + named > FEW_VALUES))
        return run_many(bound, args, keywords);
    PyObject *values[FEW_VALUES], *names[FEW_VALUES], *all = NULL, *result = NULL;
    for (Py_ssize_t i = 0; i < positional; i++)
        values[i] = PyTuple_GetItem(args, i);
    PyObject *name, *value;
    bool strings = true;
    for (Py_ssize_t i = 0, cursor = 0; i < named && PyDict_Next(keywords, &cursor, &name, &value);
         i++) {
        names[i] = silo_canonical_name(name);
        strings = strings && SILO_LIKELY(PyUnicode_CheckExact(names[i]) || PyUnicode_Check(name));
        /* Held, because a call may change the dictionary. */
        values[positional + i] = Py_NewRef(value);
    }
    if (SILO_UNLIKELY(!strings))
        PyErr_SetString(PyExc_TypeError, "keywords must be strings");
    else if (named == 0 || SILO_LIKELY((all = silo_cached_tuple(names, named)) != NULL))
        result = bound->run(bound->owner, values, positional, all);
    for (Py_ssize_t i = 0; i < named; i++)
        Py_DECREF(values[positional + i]);
    Py_XDECREF(all);
    return result;
}

static SILO_HOT PyObject *tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)self;
    if (bound->run == NULL)
        return silo_flat_call(self, args, keywords, bound->call);
    silo_triton_bound_used(bound);
    return run_few(bound, args, keywords);
}

/* Makes two objects of the same `owner.run` equal, as two bound methods are. */
static PyObject *bound_compare(PyObject *object, PyObject *other, int operation) {
    const struct silo_triton_bound *left = (struct silo_triton_bound *)object,
                                   *two = (struct silo_triton_bound *)other;
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(other) != bound_type)
        Py_RETURN_NOTIMPLEMENTED;
    const bool same = object == other ||
                      (left->run != NULL && left->run == two->run && left->owner == two->owner);
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static Py_hash_t bound_hash(PyObject *object) {
    const struct silo_triton_bound *bound = (struct silo_triton_bound *)object;
    const void *address = bound->run != NULL ? (const void *)bound->owner : (const void *)object;
    const Py_hash_t hash = (Py_hash_t)((uintptr_t)address >> 4);
    return hash != -1 ? hash : -2;
}

static PyObject *bound_itself(PyObject *self, PyObject *ignored) {
    (void)ignored;
    return Py_NewRef(self);
}

static PyObject *bound_name(PyObject *self, void *closure) {
    (void)closure;
    if (((struct silo_triton_bound *)self)->run != NULL)
        return PyUnicode_FromString("run");
    return PyErr_Format(PyExc_AttributeError, "function[grid] has no __name__");
}

/* Pickles the object as getattr(owner, "run"), as for a bound method. */
static PyObject *bound_reduce(PyObject *self, PyObject *protocol) {
    (void)protocol;
    const struct silo_triton_bound *bound = (struct silo_triton_bound *)self;
    if (bound->run == NULL)
        return PyErr_Format(PyExc_TypeError, "function[grid] cannot be pickled");
    PyObject *builtins = PyImport_ImportModule("builtins");
    PyObject *getter = builtins != NULL ? PyObject_GetAttrString(builtins, "getattr") : NULL;
    Py_XDECREF(builtins);
    return getter != NULL ? Py_BuildValue("(N(Os))", getter, bound->owner, "run") : NULL;
}

int silo_triton_bound_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct silo_triton_bound, call), READONLY,
         NULL},
        {"__self__", T_OBJECT, offsetof(struct silo_triton_bound, owner), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef attributes[] = {
        {"__name__", bound_name, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMethodDef methods[] = {
        {"__copy__", bound_itself, METH_NOARGS, NULL},
        {"__deepcopy__", bound_itself, METH_O, NULL},
        {"__reduce_ex__", bound_reduce, METH_O, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)bound_dealloc},
        {Py_tp_richcompare, (void *)bound_compare},
        {Py_tp_hash, (void *)bound_hash},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {Py_tp_traverse, (void *)bound_traverse},
        {Py_tp_call, (void *)tuple_call},
        {Py_tp_members, members},
        {Py_tp_doc, "A function, tuner or heuristics of Triton's with a grid: function[grid]; or "
                    "function.run."},
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
