#include "triton_tuned.h"

#include "canonical_names.h"
#include "flat.h"
#include "names.h"
#include "recorder.h"
#include "stand_in.h"
#include "triton_bound.h"
#include "triton_class.h"
#include "triton_decision.h"
#include "triton_kernel.h"

#define MOST_MEMBERS 8 /* the most members of a config besides its keywords */

enum decorator { AUTOTUNER, HEURISTICS };

static struct silo_triton_class classes[2];
static PyObject *own_runs[2]; /* owned: Triton's own `run` methods */

static PyObject *members[MOST_MEMBERS]; /* owned, interned: names of a config's members */
static Py_ssize_t member_count;
static PyTypeObject *decided_type; /* owned: a second type of dictionary, besides dict, that may be
                                      a tuner's cache */
static PyObject *s_arg_names, *s_keys, *s_configs, *s_cache, *s_fn, *s_kwargs, *s_pre_hook,
    *s_nargs, *s_best_config, *s_values, *s_grid, *s_warmup;

/* The arguments for the tuned kernel: positional values, followed by named ones. */
struct outgoing {
    /* Borrowed; values that heuristics made are kept alive by `results`. */
    PyObject *values[SILO_TUNED_VALUES];
    /* Borrowed: the names of the values after the positional ones. */
    PyObject *names[SILO_TUNED_VALUES];
    Py_ssize_t positional, named;
    PyObject *results[SILO_TUNED_VALUES]; /* owned: values that heuristics returned */
    Py_ssize_t result_count;
};

static void release_results(struct outgoing *out) {
    for (Py_ssize_t i = 0; i < out->result_count; i++)
        Py_DECREF(out->results[i]);
}

static bool add_named(struct outgoing *out, PyObject *name, PyObject *value) {
    if (out->positional + out->named == SILO_TUNED_VALUES)
        return false;
    out->names[out->named] = name;
    out->values[out->positional + out->named++] = value;
    return true;
}

static PyObject *tuned(enum decorator which, PyObject *self, PyObject *const *arguments,
                       Py_ssize_t positional, PyObject *const *names, Py_ssize_t named);

static bool runs_here(enum decorator which, PyObject *self) {
    return Py_TYPE(self) == classes[which].type && silo_triton_class_runs(&classes[which], self);
}

/* Returns callable(*values, **named). If `first` is not NULL, it is the first positional argument.
 */
static PyObject *call_by_python(PyObject *callable, PyObject *first, PyObject *const *values,
                                Py_ssize_t positional, PyObject *const *names, Py_ssize_t named) {
    const Py_ssize_t shift = first != NULL;
    PyObject *args = PyTuple_New(positional + shift), *keywords = PyDict_New(), *result = NULL;
    bool failed = args == NULL || keywords == NULL;
    if (!failed && first != NULL)
        PyTuple_SetItem(args, 0, Py_NewRef(first));
    for (Py_ssize_t i = 0; i < positional && !failed; i++)
        PyTuple_SetItem(args, i + shift, Py_NewRef(values[i]));
    for (Py_ssize_t i = 0; i < named && !failed; i++) {
        if (PyDict_Contains(keywords, names[i]) == 1) {
            PyErr_Format(PyExc_TypeError, "%R got multiple values for keyword argument '%U'",
                         callable, names[i]);
            failed = true;
        } else {
            failed = PyDict_SetItem(keywords, names[i], values[positional + i]) != 0;
        }
    }
    if (!failed)
        result = PyObject_Call(callable, args, keywords);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return result;
}

/* Returns true if no argument is a tracer, else false with an exception set. Used before a call of
 * a tuner's Python code, which would see a call with tracers as one that is not tuned yet. */
static bool takes_no_stand_in(PyObject *const *values, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (silo_stood_for(values[i]) != NULL) {
            PyErr_SetString(PyExc_TypeError, "a tuner that runs in Python takes no stand-ins");
            return false;
        }
    return true;
}

static PyObject *fall_back(enum decorator which, PyObject *self, PyObject *const *arguments,
                           Py_ssize_t positional, PyObject *const *names, Py_ssize_t named) {
    if (SILO_UNLIKELY(silo_recorder_is_dry()) && !takes_no_stand_in(arguments, positional + named))
        return NULL;
    return call_by_python(own_runs[which], self, arguments, positional, names, named);
}

/* Returns inner.run(*values, **named). */
static PyObject *call_inner(PyObject *inner, struct outgoing *out) {
    if (silo_triton_is_served(inner)) {
        PyObject *names = silo_cached_tuple(out->names, out->named);
        PyObject *result =
            names != NULL ? silo_triton_launch_function(inner, out->values, out->positional, names)
                          : NULL;
        Py_XDECREF(names);
        return result;
    }
    for (enum decorator which = AUTOTUNER; which <= HEURISTICS; which++) {
        if (runs_here(which, inner))
            return tuned(which, inner, out->values, out->positional, out->names, out->named);
    }
    PyObject *run = PyObject_GetAttr(inner, silo_triton_s_run);
    PyObject *result = run != NULL ? call_by_python(run, NULL, out->values, out->positional,
                                                    out->names, out->named)
                                   : NULL;
    Py_XDECREF(run);
    return result;
}

/* ---- decisions ---- */

/* Returns a member of an object's own dictionary, borrowed; NULL if it is missing. */
static PyObject *own_member(PyObject *dict, PyObject *name) {
    return PyDict_GetItemWithError(dict, name);
}

/* Adds a config's values after the values of the call. Returns false if Triton must make the call.
 */
static bool add_config(struct outgoing *out, PyObject *config, Py_ssize_t named_before) {
    PyObject *dict = PyObject_GenericGetDict(config, NULL);
    if (dict == NULL)
        return false;
    Py_DECREF(dict); /* the config still holds it */
    PyObject *hook = own_member(dict, s_pre_hook), *kwargs = own_member(dict, s_kwargs);
    if ((hook != NULL && hook != Py_None) || kwargs == NULL || !PyDict_CheckExact(kwargs))
        return false;
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(kwargs, &position, &name, &value)) {
        name = silo_canonical_name(name);
        for (Py_ssize_t i = 0; i < named_before; i++) {
            if (out->names[i] == name)
                return false; /* Triton raises an error if a call gives a tuned parameter */
        }
        if (!add_named(out, name, value))
            return false;
    }
    for (Py_ssize_t i = 0; i < member_count; i++) {
        value = own_member(dict, members[i]);
        if (value == NULL || value == Py_None)
            continue;
        for (Py_ssize_t j = 0; j < out->named; j++) {
            if (out->names[j] == members[i])
                return false;
        }
        if (!add_named(out, members[i], value))
            return false;
    }
    return true;
}

static bool start(struct outgoing *out, PyObject *const *arguments, Py_ssize_t positional,
                  PyObject *const *names, Py_ssize_t named) {
    out->positional = positional;
    out->named = named;
    out->result_count = 0;
    if (positional + named > SILO_TUNED_VALUES)
        return false;
    memcpy(out->values, arguments, (size_t)(positional + named) * sizeof *arguments);
    memcpy(out->names, names, (size_t)named * sizeof *names);
    return true;
}

/* Returns the config that Triton has chosen, borrowed from its cache; NULL if Triton must choose.
 */
static PyObject *decided(PyObject *dict, PyObject *configs, PyObject *const *arguments,
                         Py_ssize_t positional, PyObject *const *names, Py_ssize_t named) {
    if (PyList_Size(configs) == 1)
        return PyList_GetItem(configs, 0);
    PyObject *arg_names = own_member(dict, s_arg_names), *keys = own_member(dict, s_keys),
             *cache = own_member(dict, s_cache);
    if (arg_names == NULL || keys == NULL || cache == NULL || !PyList_CheckExact(arg_names) ||
        !PyList_CheckExact(keys) || (!PyDict_CheckExact(cache) && Py_TYPE(cache) != decided_type))
        return NULL;
    return silo_triton_decision(arg_names, keys, cache, arguments, positional, names, named);
}

static PyObject *run_autotuner(PyObject *self, PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *const *names, Py_ssize_t named) {
    struct outgoing out;
    PyObject *dict = PyObject_GenericGetDict(self, NULL);
    if (dict == NULL)
        return NULL;
    PyObject *configs = own_member(dict, s_configs), *inner = own_member(dict, s_fn),
             *config = NULL;
    if (configs != NULL && inner != NULL && PyList_CheckExact(configs) && PyList_Size(configs) > 0)
        config = decided(dict, configs, arguments, positional, names, named);
    PyObject *result = NULL;
    PyErr_Clear(); /* a key may be unhashable; Triton raises the error */
    Py_XINCREF(config);
    if (config == NULL || !start(&out, arguments, positional, names, named) ||
        !add_config(&out, config, named)) {
        PyErr_Clear();
        result = fall_back(AUTOTUNER, self, arguments, positional, names, named);
    } else {
        Py_INCREF(inner);
        if ((own_member(dict, s_best_config) == config ||
             PyDict_SetItem(dict, s_best_config, config) == 0) &&
            (own_member(dict, s_nargs) == Py_None || PyDict_SetItem(dict, s_nargs, Py_None) == 0))
            result = call_inner(inner, &out);
        Py_DECREF(inner);
    }
    Py_XDECREF(config);
    Py_DECREF(dict);
    return result;
}

/* Adds the result of a heuristic to the named values. Returns -1 with an exception set, or 1 if
 * `out` has no room for another value. */
static int add_heuristic(struct outgoing *out, PyObject *call_values, PyObject *name,
                         PyObject *heuristic) {
    PyObject *copy = PyDict_Copy(call_values);
    PyObject *value = copy != NULL ? silo_call_one(heuristic, copy) : NULL;
    Py_XDECREF(copy);
    if (value == NULL || PyDict_SetItem(call_values, name, value) != 0) {
        Py_XDECREF(value);
        return -1;
    }
    out->results[out->result_count++] = value;
    for (Py_ssize_t i = 0; i < out->named; i++) {
        if (out->names[i] == silo_canonical_name(name)) {
            out->values[out->positional + i] = value;
            return 0;
        }
    }
    return add_named(out, silo_canonical_name(name), value) ? 0 : 1;
}

static PyObject *run_heuristics(PyObject *self, PyObject *const *arguments, Py_ssize_t positional,
                                PyObject *const *names, Py_ssize_t named) {
    struct outgoing out;
    PyObject *dict = PyObject_GenericGetDict(self, NULL);
    if (dict == NULL)
        return NULL;
    PyObject *values = own_member(dict, s_values), *inner = own_member(dict, s_fn),
             *arg_names = own_member(dict, s_arg_names);
    PyObject *call_values = NULL, *result = NULL;
    const bool is_known =
        values != NULL && inner != NULL && arg_names != NULL && PyDict_CheckExact(values) &&
        PyList_CheckExact(arg_names) && PyList_Size(arg_names) >= positional &&
        positional + named + PyDict_Size(values) <= SILO_TUNED_VALUES &&
        start(&out, arguments, positional, names, named) && (call_values = PyDict_New()) != NULL;
    if (!is_known) {
        PyErr_Clear();
        result = fall_back(HEURISTICS, self, arguments, positional, names, named);
        Py_DECREF(dict);
        return result;
    }
    int failed = 0;
    for (Py_ssize_t i = 0; i < positional && failed == 0; i++)
        failed = PyDict_SetItem(call_values, PyList_GetItem(arg_names, i), arguments[i]);
    for (Py_ssize_t i = 0; i < named && failed == 0; i++)
        failed = PyDict_SetItem(call_values, names[i], arguments[positional + i]);
    /* A copy, because heuristics may change the dict. */
    PyObject *pairs = failed == 0 ? PyDict_Items(values) : NULL;
    Py_INCREF(inner);
    for (Py_ssize_t i = 0; pairs != NULL && i < PyList_Size(pairs) && failed == 0; i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        failed =
            add_heuristic(&out, call_values, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    }
    if (pairs != NULL && failed == 0)
        result = call_inner(inner, &out);
    release_results(&out);
    Py_XDECREF(pairs);
    Py_DECREF(inner);
    Py_DECREF(call_values);
    Py_DECREF(dict);
    return result;
}

static PyObject *tuned(enum decorator which, PyObject *self, PyObject *const *arguments,
                       Py_ssize_t positional, PyObject *const *names, Py_ssize_t named) {
    return which == AUTOTUNER ? run_autotuner(self, arguments, positional, names, named)
                              : run_heuristics(self, arguments, positional, names, named);
}

/* Stores the names of a tuple as interned strings; returns their number. */
static Py_ssize_t spread(PyObject *names, PyObject *out[SILO_TUNED_VALUES]) {
    const Py_ssize_t count = names != NULL ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count && i < SILO_TUNED_VALUES; i++)
        out[i] = silo_canonical_name(PyTuple_GetItem(names, i));
    return count;
}

static PyObject *method(enum decorator which, PyObject *self, PyObject *const *arguments,
                        Py_ssize_t positional, PyObject *names) {
    PyObject *spread_names[SILO_TUNED_VALUES];
    const Py_ssize_t named = spread(names, spread_names);
    if (named > SILO_TUNED_VALUES)
        return PyErr_Format(PyExc_TypeError, "%zd keyword arguments", named);
    return tuned(which, self, arguments, positional, spread_names, named);
}

static PyObject *autotuner_run(PyObject *self, PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *names) {
    return method(AUTOTUNER, self, arguments, positional, names);
}

static PyObject *heuristics_run(PyObject *self, PyObject *const *arguments, Py_ssize_t positional,
                                PyObject *names) {
    return method(HEURISTICS, self, arguments, positional, names);
}

/* ---- tuner[grid] ---- */

static PyObject *bound_call(PyObject *object, PyObject *const *arguments, size_t flagged,
                            PyObject *names) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)object;
    silo_triton_bound_used(bound);
    const Py_ssize_t positional = (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
    PyObject *values[SILO_TUNED_VALUES], *all[SILO_TUNED_VALUES];
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    if (positional + named + 2 > SILO_TUNED_VALUES)
        return PyErr_Format(PyExc_TypeError, "%zd arguments", positional + named);
    memcpy(values, arguments, (size_t)positional * sizeof *values);
    values[positional] = bound->grid;
    values[positional + 1] = Py_False;
    all[0] = s_grid;
    all[1] = s_warmup;
    for (Py_ssize_t i = 0; i < named; i++) {
        values[positional + 2 + i] = arguments[positional + i];
        all[2 + i] = silo_canonical_name(PyTuple_GetItem(names, i));
    }
    for (enum decorator which = AUTOTUNER; which <= HEURISTICS; which++) {
        if (SILO_LIKELY(runs_here(which, bound->owner)))
            return tuned(which, bound->owner, values, positional, all, named + 2);
    }
    if (SILO_UNLIKELY(silo_recorder_is_dry()) && !takes_no_stand_in(values, positional + named + 2))
        return NULL;
    PyObject *run = PyObject_GetAttr(bound->owner, silo_triton_s_run);
    PyObject *result =
        run != NULL ? call_by_python(run, NULL, values, positional, all, named + 2) : NULL;
    Py_XDECREF(run);
    return result;
}

static PyObject *tuned_getitem(PyObject *self, PyObject *grid) {
    return silo_triton_bind(self, grid, bound_call);
}

/* ---- the methods ---- */

static int read_members(PyObject *names) {
    if (PyTuple_Size(names) > MOST_MEMBERS) {
        PyErr_SetString(PyExc_ValueError, "a config has more members than there is room for");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = Py_NewRef(PyTuple_GetItem(names, i));
        PyUnicode_InternInPlace(&name);
        PyObject *old = members[i];
        members[i] = name;
        Py_XDECREF(old);
    }
    member_count = PyTuple_Size(names);
    return 0;
}

PyObject *silo_py_triton_tuners(PyObject *module, PyObject *args) {
    (void)module;
    static PyMethodDef runs[] = {
        {"run", (PyCFunction)(void (*)(void))autotuner_run, METH_FASTCALL | METH_KEYWORDS,
         "Launch with the config that is decided, else as Triton does."},
        {"run", (PyCFunction)(void (*)(void))heuristics_run, METH_FASTCALL | METH_KEYWORDS,
         "Launch with what the heuristics give."},
    };
    static PyMethodDef getitem = {"__getitem__", tuned_getitem, METH_O,
                                  "What launches over a grid."};
    PyObject *kinds[2], *originals[2], *names, *decided_kind;
    if (!PyArg_ParseTuple(args, "O!OO!OO!O!", &PyType_Type, &kinds[0], &originals[0], &PyType_Type,
                          &kinds[1], &originals[1], &PyTuple_Type, &names, &PyType_Type,
                          &decided_kind) ||
        read_members(names) != 0)
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)decided_kind, &PyDict_Type))
        return PyErr_Format(PyExc_TypeError, "decisions are kept in a dictionary");
    PyTypeObject *old_type = decided_type;
    decided_type = (PyTypeObject *)Py_NewRef(decided_kind);
    Py_XDECREF((PyObject *)old_type);
    PyObject *methods = PyTuple_New(4);
    for (int i = 0; i < 2 && methods != NULL; i++) {
        PyObject *run = PyDescr_NewMethod((PyTypeObject *)kinds[i], &runs[i]);
        PyObject *item = PyDescr_NewMethod((PyTypeObject *)kinds[i], &getitem);
        if (run == NULL || item == NULL) {
            Py_XDECREF(run);
            Py_XDECREF(item);
            Py_CLEAR(methods);
            break;
        }
        PyObject *old = own_runs[i];
        own_runs[i] = Py_NewRef(originals[i]);
        Py_XDECREF(old);
        silo_triton_class_set(&classes[i], (PyTypeObject *)kinds[i], run);
        PyTuple_SetItem(methods, 2 * i, run);
        PyTuple_SetItem(methods, 2 * i + 1, item);
    }
    return methods;
}

int silo_triton_tuned_init(void) {
    static const struct silo_name names[] = {
        {&s_arg_names, "arg_names"}, {&s_keys, "keys"},   {&s_configs, "configs"},
        {&s_cache, "cache"},         {&s_fn, "fn"},       {&s_kwargs, "kwargs"},
        {&s_pre_hook, "pre_hook"},   {&s_nargs, "nargs"}, {&s_best_config, "best_config"},
        {&s_values, "values"},       {&s_grid, "grid"},   {&s_warmup, "warmup"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}
