#include "triton_kernel.h"

#include "flat.h"
#include "launch.h"
#include "launcher_arrange.h"
#include "launcher_type.h"
#include "names.h"
#include "triton_bound.h"
#include "triton_class.h"
#include "triton_run.h"

static PyObject *first_use; /* owned callable: puts a TritonKernel into a function's dictionary */
/* Owned callable: puts a TritonKernel into a compiled kernel's dictionary. */
static PyObject *first_launch;
static struct silo_triton_class functions;
static PyObject *s_kernel;

static PyTypeObject *kernel_type;

#define ODD_GRID "its grid is no tuple of one to three integers, none below 0, and no function"

/* Returns the TritonKernel of a function or a compiled kernel, borrowed from its dictionary.
 * Returns NULL with an exception set, or without one if Triton must launch. */
SILO_INLINE struct silo_triton_kernel *kernel_of(const struct silo_triton_call *call) {
    PyObject *const function = call->function;
    PyObject *dict = PyObject_GenericGetDict(function, NULL);
    if (SILO_UNLIKELY(dict == NULL))
        return NULL;
    PyObject *entry = PyDict_GetItemWithError(dict, s_kernel);
    Py_DECREF(dict); /* the function still holds it */
    if (SILO_LIKELY(entry != NULL && Py_TYPE(entry) == kernel_type &&
                    ((struct silo_triton_kernel *)entry)->function == function))
        return (struct silo_triton_kernel *)entry;
    PyObject *const first = call->compiled ? first_launch : first_use;
    if (PyErr_Occurred() || first == NULL)
        return NULL;
    entry = silo_call_one(first, function);
    Py_XDECREF(entry); /* the function's dictionary still holds it */
    if (entry == NULL || Py_TYPE(entry) != kernel_type)
        return NULL;
    return (struct silo_triton_kernel *)entry;
}

/* Returns whether the guard may be used for a launch now. */
SILO_INLINE bool is_served(const struct silo_triton_kernel *kernel) {
    if (SILO_UNLIKELY(kernel->launcher == NULL))
        return false;
    /* NULL before the first launch, which sets the members read below. */
    if (SILO_UNLIKELY(kernel->hooks == NULL))
        return true;
    return SILO_LIKELY(PyList_Size(kernel->hooks) == 0) &&
           SILO_LIKELY(PyDict_Size(kernel->globals) == 0 || silo_triton_globals_hold(kernel));
}

/* Returns whether Triton may make a launch that the guard does not serve. Triton cannot compare the
 * globals of code that it did not compile, so this function compares them and calls `changed` if
 * one differs. If `changed` raises, it returns false with the exception set. */
static SILO_NOINLINE bool may_go(const struct silo_triton_kernel *kernel) {
    if (kernel->changed == NULL || silo_triton_globals_hold(kernel))
        return true;
    PyObject *changed = Py_NewRef(kernel->changed);
    PyObject *result = PyObject_CallNoArgs(changed);
    Py_DECREF(changed);
    Py_XDECREF(result);
    return result != NULL;
}

/* Clears the guard after the program emptied Triton's caches, so that Silo compiles the kernel
 * again, as Triton does. */
static SILO_NOINLINE void forget(struct silo_triton_kernel *kernel) {
    kernel->device_count = PyDict_Size(kernel->devices);
    kernel->cached = PyDict_Size(kernel->caches);
    silo_binding_table_clear(&kernel->launcher->bindings);
}

SILO_INLINE bool has_shrunk(const struct silo_triton_kernel *kernel) {
    return kernel->caches != NULL && (PyDict_Size(kernel->caches) < kernel->cached ||
                                      PyDict_Size(kernel->devices) < kernel->device_count);
}

/* Returns whether a call only compiles (warmup). */
static bool is_warmup(const struct silo_triton_call *call) {
    const Py_ssize_t named = call->names != NULL ? PyTuple_Size(call->names) : 0;
    for (Py_ssize_t i = 0; i < named; i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(call->names, i), "warmup") == 0)
            return call->arguments[call->positional + i] != Py_False;
    return false;
}

/* Lets Triton make the call, and counts the launch by `reason`. */
static SILO_NOINLINE PyObject *go(struct silo_triton_call *call, const char *reason) {
    return is_warmup(call) ? silo_triton_fall_back(call, NULL)
                           : silo_triton_fall_back_for(call, reason);
}

/* Lets Triton make a call for which the guard was not used. The reason is `odd`; if that is NULL,
 * this function finds the reason. */
static SILO_NOINLINE PyObject *go_unasked(struct silo_triton_call *call, const char *odd) {
    const struct silo_triton_kernel *kernel = call->kernel;
    if (kernel != NULL && kernel->refused != NULL)
        return silo_triton_fall_back(call, is_warmup(call) ? NULL : kernel->refused);
    if (odd != NULL)
        return go(call, odd);
    const bool hooked = kernel != NULL && kernel->hooks && PyList_Size(kernel->hooks) > 0;
    return go(call, hooked ? "hooks before its runs (add_pre_run_hook) see each launch"
                           : "a global that it reads has changed");
}

/* Puts the arguments into the order of the parameters, and launches. */
static SILO_HOT PyObject *invoke(struct silo_triton_call *call, const int64_t *dims) {
    struct silo_launcher *launcher = call->kernel->launcher;
    struct silo_inputs inputs;
    struct silo_grid_source source, *grid_source = NULL;
    if (dims != NULL) {
        source.callable = NULL;
        source.object = call->grid;
        memcpy(source.dims, dims, sizeof source.dims);
        grid_source = &source;
    } else if (call->grid != NULL) {
        source.callable = call->grid;
        grid_source = &source;
    }
    inputs.triton = call;
    inputs.stream = inputs.grid = NULL;
    inputs.options = 0;
    if (SILO_LIKELY(call->names == NULL && call->positional == launcher->plan.count &&
                    grid_source != NULL)) {
        inputs.arguments = call->arguments;
        return silo_launch_triton(launcher, &inputs, grid_source);
    }
    if (SILO_UNLIKELY(call->compiled))
        return go(call, "the number of its arguments is not that of its parameters");
    bool temporary = false;
    struct silo_form *form =
        silo_launcher_form(launcher, call->positional, call->names, &temporary);
    if (form == NULL)
        return NULL;
    PyObject *result = NULL;
    PyObject *full[(size_t)launcher->plan.count + 1];
    PyObject *grid = form->grid >= 0 ? call->arguments[form->grid] : NULL;
    bool falls_back = form->foreign || (call->grid != NULL) == (grid != NULL || form->warmup >= 0);
    if (!falls_back && form->warmup >= 0)
        falls_back = call->arguments[form->warmup] != Py_False;
    if (!falls_back && grid != NULL) {
        call->named = grid;
        if (PyCallable_Check(grid)) {
            source.callable = grid;
        } else {
            source.callable = NULL;
            source.object = grid;
            falls_back = !PyTuple_Check(grid) ||
                         silo_grid_parse(launcher->plan.kernel, grid, source.dims) != 0;
            PyErr_Clear();
        }
        grid_source = &source;
    }
    if (falls_back) {
        result =
            go(call, form->foreign ? "a keyword that Silo's guard does not compare" : ODD_GRID);
    } else {
        for (int32_t i = 0; i < launcher->plan.count; i++) {
            const int16_t source = form->source[i];
            full[i] = source >= 0                   ? call->arguments[source]
                      : source == SILO_FORM_DEFAULT ? launcher->plan.defaults[i]
                                                    : NULL;
        }
        inputs.arguments = full;
        inputs.options = form->options;
        for (uint32_t i = 0; i < form->options; i++) {
            inputs.option[i] = form->option[i];
            inputs.option_value[i] = call->arguments[form->option_source[i]];
        }
        result = silo_launch_triton(launcher, &inputs, grid_source);
    }
    if (temporary)
        silo_form_free(form);
    return result;
}

/* Makes a call of a Triton program. `odd` is the reason why the guard cannot be used, or NULL. */
SILO_INLINE PyObject *serve(struct silo_triton_call *call, const int64_t *dims, const char *odd) {
    struct silo_triton_settings *now = silo_triton_settings_now();
    if (SILO_UNLIKELY(now == NULL))
        return PyErr_Occurred() ? NULL : silo_triton_fall_back(call, NULL);
    PyObject *result = NULL;
    struct silo_triton_kernel *kernel = now->blocked ? NULL : kernel_of(call);
    if (SILO_UNLIKELY(now->blocked))
        now->passed++;
    if (SILO_UNLIKELY(kernel == NULL || odd != NULL || !is_served(kernel))) {
        /* held, because a program may empty the function's dictionary meanwhile */
        Py_XINCREF((PyObject *)kernel);
        if (!PyErr_Occurred() && (kernel == NULL || may_go(kernel))) {
            call->kernel = kernel;
            result = go_unasked(call, odd);
        }
        Py_XDECREF((PyObject *)kernel);
    } else {
        /* Held, because a program may empty the function's dictionary meanwhile. */
        Py_INCREF((PyObject *)kernel);
        call->kernel = kernel;
        call->settings = now;
        if (SILO_UNLIKELY(has_shrunk(kernel)))
            forget(kernel);
        if (SILO_LIKELY(silo_triton_find_queue(call) == 0))
            result = invoke(call, dims);
        Py_CLEAR(call->dims);
        if (call->compiled && kernel->of != NULL) {
            kernel->of->launches += kernel->launches;
            kernel->launches = 0;
        }
        Py_DECREF((PyObject *)kernel);
    }
    Py_DECREF((PyObject *)now);
    return result;
}

static SILO_HOT PyObject *triton_run(PyObject *function, PyObject *const *arguments,
                                     Py_ssize_t positional, PyObject *names) {
    struct silo_triton_call call = {
        .function = function, .arguments = arguments, .positional = positional, .names = names};
    return serve(&call, NULL, NULL);
}

/* ---- function[grid] ---- */

bool silo_triton_is_served(PyObject *function) {
    return Py_TYPE(function) == functions.type && silo_triton_class_runs(&functions, function);
}

PyObject *silo_triton_launch_function(PyObject *function, PyObject *const *arguments,
                                      Py_ssize_t positional, PyObject *names) {
    return triton_run(function, arguments, positional, names);
}

/* Returns the call of an object `function[grid]` or `compiled[grid]` with these arguments. */
static inline struct silo_triton_call call_of(const struct silo_triton_bound *bound,
                                              PyObject *const *arguments, size_t flagged,
                                              PyObject *names) {
    return (struct silo_triton_call){.function = bound->owner,
                                     .arguments = arguments,
                                     .positional =
                                         (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET),
                                     .names = names,
                                     .grid = bound->grid};
}

static SILO_HOT PyObject *bound_call(PyObject *self, PyObject *const *arguments, size_t flagged,
                                     PyObject *names) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)self;
    silo_triton_bound_used(bound);
    struct silo_triton_call call = call_of(bound, arguments, flagged, names);
    if (SILO_UNLIKELY(!silo_triton_class_runs(&functions, bound->owner))) {
        PyObject *run = PyObject_GetAttr(bound->owner, silo_triton_s_run);
        PyObject *result = run != NULL ? silo_triton_by(run, &call) : NULL;
        Py_XDECREF(run);
        return result;
    }
    return serve(&call, bound->plain ? bound->dims : NULL,
                 bound->plain || PyCallable_Check(bound->grid) ? NULL : ODD_GRID);
}

static SILO_HOT PyObject *triton_getitem(PyObject *function, PyObject *grid) {
    return silo_triton_bind(function, grid, bound_call);
}

/* ---- compiled[grid] ---- */

static SILO_HOT PyObject *compiled_call(PyObject *self, PyObject *const *arguments, size_t flagged,
                                        PyObject *names) {
    struct silo_triton_bound *bound = (struct silo_triton_bound *)self;
    silo_triton_bound_used(bound);
    struct silo_triton_call call = call_of(bound, arguments, flagged, names);
    call.compiled = true;
    /* Triton requires all three extents here. */
    const bool plain = bound->plain && PyTuple_Size(bound->grid) == 3;
    return serve(&call, bound->dims,
                 !plain          ? "its grid is no tuple of three integers, none below 0"
                 : names != NULL ? "a stream that is given, or arguments by name"
                                 : NULL);
}

static PyObject *compiled_getitem(PyObject *compiled, PyObject *grid) {
    PyObject *dict = PyObject_GenericGetDict(compiled, NULL);
    if (dict == NULL)
        return NULL;
    const int served = PyDict_Contains(dict, s_kernel);
    Py_DECREF(dict);
    if (served <= 0) { /* Triton's __getitem__ loads the kernel, which may fail */
        PyObject *pair = served == 0 ? PyTuple_Pack(2, compiled, grid) : NULL;
        PyObject *runner = pair != NULL ? PyObject_Call(silo_triton_compiled, pair, NULL) : NULL;
        Py_XDECREF(pair);
        if (runner == NULL)
            return NULL;
        Py_DECREF(runner);
    }
    return silo_triton_bind(compiled, grid, compiled_call);
}

/* ---- kernels ---- */

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"function", "launcher", "told", "refused", "of", NULL};
    PyObject *function, *launcher, *on_reason, *refused, *of = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOO|O!", names, &function, &launcher,
                                     &on_reason, &refused, kernel_type, &of))
        return NULL;
    if (launcher != Py_None && !PyObject_TypeCheck(launcher, silo_launcher_type))
        return PyErr_Format(PyExc_TypeError, "launcher is a Launcher or None");
    struct silo_triton_kernel *self = (struct silo_triton_kernel *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->function = function;
    self->on_reason = Py_NewRef(on_reason);
    self->of = (struct silo_triton_kernel *)Py_XNewRef(of);
    self->refused = refused == Py_None ? NULL : Py_NewRef(refused);
    if (launcher != Py_None)
        self->launcher = (struct silo_launcher *)Py_NewRef(launcher);
    return (PyObject *)self;
}

static PyObject *kernel_learned(PyObject *object, PyObject *args) {
    struct silo_triton_kernel *self = (struct silo_triton_kernel *)object;
    PyObject *hooks, *devices, *caches, *globals, *changed = NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!O!|O", &PyList_Type, &hooks, &PyDict_Type, &devices,
                          &PyDict_Type, &caches, &PyDict_Type, &globals, &changed))
        return NULL;
    const Py_ssize_t count = PyDict_Size(globals);
    PyObject *values = PyList_New(count);
    if (values == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) /* no value has been compared yet */
        PyList_SetItem(values, i, Py_NewRef(silo_absent));
    PyObject *old[] = {self->values, self->hooks,   self->devices,
                       self->caches, self->globals, self->changed};
    self->changed = Py_XNewRef(changed);
    self->hooks = Py_NewRef(hooks);
    self->devices = Py_NewRef(devices);
    self->caches = Py_NewRef(caches);
    self->globals = Py_NewRef(globals);
    self->values = values;
    self->device_count = PyDict_Size(devices);
    self->cached = PyDict_Size(caches);
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        Py_XDECREF(old[i]);
    Py_RETURN_NONE;
}

static PyObject *kernel_reduce(PyObject *self, PyObject *protocol) {
    (void)self, (void)protocol;
    /* In a copied or pickled function, the TritonKernel becomes None. */
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static int kernel_traverse(PyObject *object, visitproc visit, void *arg) {
    struct silo_triton_kernel *self = (struct silo_triton_kernel *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT((PyObject *)self->launcher);
    Py_VISIT(self->hooks);
    Py_VISIT(self->devices);
    Py_VISIT(self->caches);
    Py_VISIT(self->globals);
    Py_VISIT(self->values);
    Py_VISIT(self->changed);
    Py_VISIT(self->reasons);
    Py_VISIT(self->on_reason);
    Py_VISIT(self->refused);
    Py_VISIT((PyObject *)self->of);
    return 0;
}

static int kernel_clear(PyObject *object) {
    struct silo_triton_kernel *self = (struct silo_triton_kernel *)object;
    Py_CLEAR(self->launcher);
    Py_CLEAR(self->hooks);
    Py_CLEAR(self->devices);
    Py_CLEAR(self->caches);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->values);
    Py_CLEAR(self->changed);
    Py_CLEAR(self->reasons);
    Py_CLEAR(self->on_reason);
    Py_CLEAR(self->refused);
    Py_CLEAR(self->of);
    return 0;
}

static void kernel_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    kernel_clear(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- the methods ---- */

PyObject *silo_py_triton_methods(PyObject *module, PyObject *args) {
    (void)module;
    static PyMethodDef getitem_method = {"__getitem__", triton_getitem, METH_O,
                                         "What launches over a grid."};
    PyObject *type, *callback;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &callback))
        return NULL;
    PyObject *run = silo_triton_run_new((PyTypeObject *)type, triton_run);
    PyObject *getitem = PyDescr_NewMethod((PyTypeObject *)type, &getitem_method);
    if (run == NULL || getitem == NULL) {
        Py_XDECREF(run);
        Py_XDECREF(getitem);
        return NULL;
    }
    PyObject *old = first_use;
    first_use = Py_NewRef(callback);
    Py_XDECREF(old);
    silo_triton_class_set(&functions, (PyTypeObject *)type, run);
    return Py_BuildValue("(NN)", run, getitem);
}

PyObject *silo_py_triton_compiled(PyObject *module, PyObject *args) {
    (void)module;
    static PyMethodDef method = {"__getitem__", compiled_getitem, METH_O,
                                 "What launches over a grid."};
    PyObject *type, *getitem, *callback;
    if (!PyArg_ParseTuple(args, "O!OO", &PyType_Type, &type, &getitem, &callback))
        return NULL;
    PyObject *descriptor = PyDescr_NewMethod((PyTypeObject *)type, &method);
    if (descriptor == NULL)
        return NULL;
    PyObject *old_getitem = silo_triton_compiled, *old = first_launch;
    silo_triton_compiled = Py_NewRef(getitem);
    first_launch = Py_NewRef(callback);
    Py_XDECREF(old_getitem);
    Py_XDECREF(old);
    return descriptor;
}

int silo_triton_kernel_init(PyObject *module) {
    static const struct silo_name names[] = {{&s_kernel, "_silo_kernel"}};
    static PyMemberDef kernel_members[] = {
        {"launches", T_ULONGLONG, offsetof(struct silo_triton_kernel, launches), READONLY,
         "Launches that the guard served."},
        {"own_launches", T_ULONGLONG, offsetof(struct silo_triton_kernel, own_launches), READONLY,
         "Launches that went Triton's own way."},
        {"reasons", T_OBJECT, offsetof(struct silo_triton_kernel, reasons), READONLY,
         "Of these launches, how many for each reason; None: no reason, they were the first of "
         "their kinds."},
        {"launcher", T_OBJECT, offsetof(struct silo_triton_kernel, launcher), READONLY,
         "The Launcher, or None."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMethodDef kernel_methods[] = {
        {"learned", kernel_learned, METH_VARARGS,
         "learned(hooks, devices, caches, globals, changed=..., /)\n\nWhat a launch looks at "
         "before the guard "
         "is asked."},
        {"__reduce_ex__", kernel_reduce, METH_O, "None: a copy of a function has none."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot kernel_slots[] = {
        {Py_tp_new, (void *)kernel_new},
        {Py_tp_dealloc, (void *)kernel_dealloc},
        {Py_tp_traverse, (void *)kernel_traverse},
        {Py_tp_clear, (void *)kernel_clear},
        {Py_tp_members, kernel_members},
        {Py_tp_methods, kernel_methods},
        {Py_tp_doc, "TritonKernel(function, launcher, told, refused, of=...)\n--\n\nHow launches "
                    "of one Triton function "
                    "are served; its dictionary holds it."},
        {0, NULL},
    };
    static PyType_Spec kernel_spec = {"silo._native.TritonKernel",
                                      sizeof(struct silo_triton_kernel), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kernel_slots};
    kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    if (kernel_type == NULL || silo_intern(names, sizeof names / sizeof *names) != 0)
        return -1;
    return PyModule_AddObjectRef(module, "TritonKernel", (PyObject *)kernel_type);
}
