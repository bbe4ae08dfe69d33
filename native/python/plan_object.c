#include "plan_object.h"

#include "arguments.h"
#include "cpu_clock.h"
#include "errors.h"
#include "flat.h"
#include "hooks.h"
#include "names.h"
#include "plan_form.h"
#include "recorder.h"
#include "shapes.h"
#include "stack.h"
#include "stream.h"

static PyObject *s_miss;

/* The most forms that a plan keeps. */
#define MOST_FORMS 64

struct plan {
    PyObject_HEAD vectorcallfunc call;
    int32_t count;                              /* number of arguments */
    PyObject *name;                             /* owned str */
    PyObject *names;                            /* owned tuple of interned str */
    struct silo_plan_served *forms[MOST_FORMS]; /* owned; freed only with the plan */
    uint32_t form_count;
    uint32_t last; /* index of the form that served the last replay, which is tried first */
    uint64_t replays, misses;
    silo_lock adding;
};

/* The arguments of one call, after they were read. */
struct call_arguments {
    PyObject *object[SILO_PLAN_ARGUMENTS];
    uint8_t kind[SILO_PLAN_ARGUMENTS]; /* enum silo_plan_kind */
    uint64_t word[SILO_PLAN_ARGUMENTS], low[SILO_PLAN_ARGUMENTS], high[SILO_PLAN_ARGUMENTS];
    struct silo_view view[SILO_PLAN_ARGUMENTS];
    const int64_t *sizes[SILO_PLAN_ARGUMENTS], *strides[SILO_PLAN_ARGUMENTS];
    int32_t ranks[SILO_PLAN_ARGUMENTS], itemsizes[SILO_PLAN_ARGUMENTS];
    struct silo_shape *shapes;          /* one for each argument, on the stack of the call */
    const struct silo_adapter *adapter; /* adapter of the first array, or NULL */
    struct silo_holds holds;
    Py_buffer buffers[SILO_PLAN_ARGUMENTS];
    PyObject *objects[2 * SILO_PLAN_ARGUMENTS + 8];
};

/* ---- arguments ---- */

static int place_keyword(const struct plan *self, struct call_arguments *call, PyObject *name,
                         PyObject *value) {
    for (int32_t i = 0; i < self->count; i++) {
        PyObject *parameter = PyTuple_GetItem(self->names, i);
        if (parameter != name && PyUnicode_Compare(parameter, name) != 0)
            continue;
        if (call->object[i] != NULL) {
            PyErr_Format(silo_argument_error, "%U: argument '%U' is given twice", self->name, name);
            return -1;
        }
        call->object[i] = value;
        return 0;
    }
    PyErr_Format(silo_argument_error, "%U has no argument '%U'; its arguments: %R", self->name,
                 name, self->names);
    return -1;
}

static int place_all(const struct plan *self, struct call_arguments *call,
                     PyObject *const *arguments, Py_ssize_t positional, PyObject *names) {
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    if (SILO_UNLIKELY(positional > self->count)) {
        PyErr_Format(silo_argument_error,
                     "%U takes %d arguments, %zd were given; its arguments: %R", self->name,
                     (int)self->count, positional, self->names);
        return -1;
    }
    for (int32_t i = 0; i < self->count; i++)
        call->object[i] = i < positional ? arguments[i] : NULL;
    for (Py_ssize_t i = 0; i < named; i++)
        if (place_keyword(self, call, PyTuple_GetItem(names, i), arguments[positional + i]) != 0)
            return -1;
    for (int32_t i = 0; i < self->count; i++)
        if (SILO_UNLIKELY(call->object[i] == NULL)) {
            PyErr_Format(silo_argument_error, "%U is called without '%U'; its arguments: %R",
                         self->name, PyTuple_GetItem(self->names, i), self->names);
            return -1;
        }
    return 0;
}

/* Stores the lowest address of an array's elements, and the address after the highest element. */
static void reach(const struct silo_shape *shape, uint64_t address, uint64_t *low, uint64_t *high) {
    int64_t below = 0, above = 0;
    *low = *high = address;
    for (int32_t i = 0; i < shape->ndim; i++) {
        if (shape->sizes[i] == 0)
            return;
        const int64_t last = (shape->sizes[i] - 1) * shape->strides[i];
        below += last < 0 ? last : 0;
        above += last > 0 ? last : 0;
    }
    *low = address + (uint64_t)(below * shape->itemsize);
    *high = address + (uint64_t)((above + 1) * shape->itemsize);
}

static int read_array(const struct plan *self, struct call_arguments *call, int32_t index,
                      const struct silo_adapter *adapter) {
    struct silo_shape *shape = &call->shapes[index];
    if (silo_view_read(call->object[index], adapter, &call->view[index], &call->holds) != 0 ||
        silo_shape_read(call->object[index], adapter, shape) != 0)
        return silo_bad_argument(self->name, PyTuple_GetItem(self->names, index),
                                 "an array that has its memory", call->object[index]);
    call->kind[index] = SILO_PLAN_ARRAY;
    call->word[index] = call->view[index].address;
    call->sizes[index] = shape->sizes;
    call->strides[index] = shape->strides;
    call->ranks[index] = shape->ndim;
    call->itemsizes[index] = shape->itemsize;
    reach(shape, call->view[index].address, &call->low[index], &call->high[index]);
    if (call->adapter == NULL)
        call->adapter = adapter;
    return 0;
}

static int read_number(const struct plan *self, struct call_arguments *call, int32_t index,
                       PyObject *number) {
    if (PyFloat_Check(number)) {
        const double value = PyFloat_AsDouble(number);
        memcpy(&call->word[index], &value, sizeof value);
        call->kind[index] = SILO_PLAN_FLOAT;
        return 0;
    }
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0 || (value == -1 && PyErr_Occurred()))
        return silo_bad_argument(self->name, PyTuple_GetItem(self->names, index),
                                 "an integer of 64 bits", number);
    call->word[index] = (uint64_t)value;
    call->kind[index] = SILO_PLAN_INT;
    return 0;
}

static int read_one(const struct plan *self, struct call_arguments *call, int32_t index) {
    PyObject *object = call->object[index];
    PyTypeObject *type = Py_TYPE(object);
    call->sizes[index] = call->strides[index] = NULL;
    call->ranks[index] = call->itemsizes[index] = 0;
    call->low[index] = call->high[index] = call->word[index] = 0;
    if (type == &PyLong_Type || type == &PyFloat_Type)
        return read_number(self, call, index, object);
    call->kind[index] = SILO_PLAN_OTHER;
    if (object == Py_None || type == &PyBool_Type || type == &PyUnicode_Type)
        return 0;
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (adapter == NULL)
        return -1;
    if (adapter->kind == SILO_ADAPT_INT || adapter->kind == SILO_ADAPT_FLOAT) {
        PyObject *number =
            adapter->kind == SILO_ADAPT_INT ? PyNumber_Index(object) : PyNumber_Float(object);
        const int result = number != NULL ? read_number(self, call, index, number) : -1;
        Py_XDECREF(number);
        return result;
    }
    if (adapter->kind == SILO_ADAPT_NOTHING || adapter->kind > SILO_ADAPT_FLOAT)
        return 0;
    return read_array(self, call, index, adapter);
}

/* ---- which form ---- */

/* Returns whether an argument meets a form's condition: 1 or 0. It leaves no exception. */
static int suits(const struct silo_plan_condition *condition, const struct call_arguments *call,
                 int32_t index) {
    if (condition->kind != call->kind[index])
        return 0;
    if (condition->kind == SILO_PLAN_OTHER) {
        PyObject *object = call->object[index];
        if (condition->other == object)
            return 1;
        if (Py_TYPE(condition->other) != Py_TYPE(object))
            return 0;
        const int same = PyObject_RichCompareBool(condition->other, object, Py_EQ);
        if (same < 0)
            PyErr_Clear(); /* an object that cannot be compared counts as different */
        return same > 0;
    }
    if (condition->kind != SILO_PLAN_ARRAY)
        return 1;
    const struct silo_view *view = &call->view[index];
    if (view->dtype.code != condition->type.code || view->dtype.bits != condition->type.bits ||
        view->device_type != condition->device_type || view->device_id != condition->device_id ||
        view->readonly != condition->readonly ||
        (condition->rank >= 0 && call->ranks[index] != condition->rank))
        return 0;
    for (int32_t i = 0; condition->held && i < condition->rank; i++)
        if (call->sizes[index][i] != condition->extents[i] ||
            call->strides[index][i] != condition->extents[condition->rank + i])
            return 0;
    return 1;
}

static bool all_suit(const struct silo_plan_served *served, const struct call_arguments *call) {
    for (int32_t i = 0; i < served->count; i++)
        if (suits(&served->conditions[i], call, i) != 1)
            return false;
    return true;
}

/* ---- a replay ---- */

static int take(struct silo_plan_served *served) {
    if (SILO_LIKELY(silo_fork_lock_try(&served->lock)))
        return 0;
    PyThreadState *state = PyEval_SaveThread();
    silo_fork_lock_take(&served->lock);
    PyEval_RestoreThread(state);
    return 0;
}

/* The form that this thread is replaying. A signal handler may call the plan again during the
 * replay; that call is refused, because it would wait forever for the form's lock. */
static _Thread_local const struct silo_plan_served *inside;

static int launch(const struct plan *self, struct silo_plan_served *served, int index,
                  void *stream) {
    silo_error error;
    inside = served;
    PyThreadState *state = PyEval_SaveThread();
    const int result = served->backend->launch(served->state[index], stream, &error);
    PyEval_RestoreThread(state);
    inside = NULL;
    if (SILO_LIKELY(result == 0))
        return 0;
    if (PyErr_Occurred()) { /* a signal handler of the program raised an exception; that exception
                               is raised, with a note about the plan */
        silo_add_note("%U: %s", self->name, error.text);
        silo_error_clear(&error);
        return -1;
    }
    return silo_raise(&error);
}

/* Replays a form. Returns 1 if the form served the call, 0 if the call needs another form, or -1
 * with an exception set. Unless `whole` is set, it fills the block (the memory that holds the
 * parameters) but launches nothing. */
static int replay(struct plan *self, struct silo_plan_served *served,
                  const struct call_arguments *call, bool whole) {
    const struct silo_plan_arguments arguments = {
        .bindings = {.slot_count = served->count,
                     .values = (const int64_t *)call->word,
                     .shapes = call->sizes,
                     .strides = call->strides,
                     .ndims = call->ranks,
                     .itemsizes = call->itemsizes},
        .words = call->word,
        .low = call->low,
        .high = call->high,
    };
    uint64_t overlaps[SILO_PLAN_MEMORIES];
    silo_plan_overlaps(&served->form, &arguments, overlaps);
    const bool as_recorded =
        served->state[0] != NULL &&
        memcmp(overlaps, served->form.overlaps, served->form.memory_count * sizeof *overlaps) == 0;
    const int variant = as_recorded ? 0 : 1;
    if (SILO_UNLIKELY(inside == served)) {
        PyErr_Format(silo_launch_error,
                     "%U: this thread is within a replay of the plan, which a signal's handler "
                     "called again",
                     self->name);
        return -1;
    }
    void *stream = NULL;
    if (served->device != NULL &&
        silo_stream_current(call->adapter, served->memory_type, served->device_index, &stream) != 0)
        return -1;
    if (take(served) != 0)
        return -1;
    silo_error error;
    uint8_t *block;
    uint32_t check;
    int result = -1;
    const uint64_t begun = silo_cpu_now();
    if (served->backend->begin(served->state[variant], &block, &error) != 0) {
        silo_raise(&error);
    } else {
        switch (silo_plan_fill(&served->form, &arguments, block, &check, &error)) {
        case SILO_PLAN_FILLED:
            result = !whole || launch(self, served, variant, stream) == 0 ? 1 : -1;
            served->replays += whole;
            break;
        case SILO_PLAN_OTHER_FORM:
            result = 0;
            break;
        case SILO_PLAN_REFUSED: /* an expression that overflows 64 bits is no error here, because
                                   Python's integers do not overflow */
            result = error.code == SILO_ERROR_EXPRESSION ? 0 : silo_raise(&error);
            break;
        }
    }
    served->nanoseconds += result == 1 && whole ? silo_cpu_now() - begun : 0;
    silo_fork_lock_give(&served->lock);
    return result;
}

/* Returns the kernels' names of a replay's launches, in order; a new reference. */
static PyObject *parts_of(const struct silo_plan_form *form) {
    PyObject *parts = PyTuple_New((Py_ssize_t)form->node_count);
    for (uint32_t i = 0; i < form->node_count && parts != NULL; i++) {
        PyObject *name = PyUnicode_FromString(form->nodes[i].kernel);
        if (name == NULL || PyTuple_SetItem(parts, (Py_ssize_t)i, name) != 0)
            Py_CLEAR(parts);
    }
    return parts;
}

/* Replays a form between calls of a hook, which sees the replay as one launch. */
static int replay_with_hooks(struct plan *self, struct silo_plan_served *served,
                             const struct call_arguments *call) {
    void *stream = NULL;
    /* Hooks are called only if the form serves the call. */
    const int serves = replay(self, served, call, false);
    if (serves <= 0)
        return serves;
    if (served->device != NULL &&
        silo_stream_current(call->adapter, served->memory_type, served->device_index, &stream) != 0)
        return -1;
    PyObject *arguments = PyDict_New(), *parts = parts_of(&served->form);
    for (int32_t i = 0; i < self->count && arguments != NULL; i++)
        if (PyDict_SetItem(arguments, PyTuple_GetItem(self->names, i), call->object[i]) != 0)
            Py_CLEAR(arguments);
    PyObject *token = arguments != NULL && parts != NULL && silo_stack_check() == 0
                          ? silo_hooks_enter_plan(self->name, arguments,
                                                  served->device != NULL ? served->first : NULL,
                                                  stream, (PyObject *)self, parts)
                          : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(parts);
    if (token == NULL)
        return -1;
    const int result = replay(self, served, call, true);
    return silo_hooks_exit(token) == 0 ? result : -1;
}

/* Returns the object for one pair (argument's number, object) of a form's result. */
static PyObject *returned(PyObject *pair, const struct call_arguments *call) {
    const long argument = PyLong_AsLong(PyTuple_GetItem(pair, 0));
    return Py_NewRef(argument >= 0 ? call->object[argument] : PyTuple_GetItem(pair, 1));
}

/* Returns the value of a replay, a new reference. */
static PyObject *result_of(const struct silo_plan_served *served,
                           const struct call_arguments *call) {
    if (SILO_LIKELY(served->result == Py_None))
        Py_RETURN_NONE;
    if (!PyTuple_Check(PyTuple_GetItem(served->result, 0)))
        return returned(served->result, call);
    const Py_ssize_t count = PyTuple_Size(served->result);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++)
        PyTuple_SetItem(tuple, i, returned(PyTuple_GetItem(served->result, i), call));
    return tuple;
}

static int serve(struct plan *self, const struct call_arguments *call, PyObject **out) {
    const uint32_t count = __atomic_load_n(&self->form_count, __ATOMIC_ACQUIRE);
    const uint32_t last = self->last;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = i == 0 ? last : i <= last ? i - 1 : i;
        struct silo_plan_served *served = self->forms[number];
        if (!all_suit(served, call))
            continue;
        const int result = SILO_UNLIKELY(silo_hooks_on & ~SILO_LOOKS_FLIGHT)
                               ? replay_with_hooks(self, served, call)
                               : replay(self, served, call, true);
        if (result != 0) {
            self->last = number;
            self->replays += result > 0;
            *out = result > 0 ? result_of(served, call) : NULL;
            return result;
        }
    }
    return 0;
}

static SILO_NOINLINE PyObject *ask(struct plan *self, const struct call_arguments *call) {
    PyObject *tuple = PyTuple_New(self->count);
    for (int32_t i = 0; tuple != NULL && i < self->count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(call->object[i]));
    self->misses++;
    PyObject *result = tuple != NULL && silo_stack_check() == 0
                           ? PyObject_CallMethodObjArgs((PyObject *)self, s_miss, tuple, NULL)
                           : NULL;
    Py_XDECREF(tuple);
    return result;
}

static PyObject *plan_call(PyObject *object, PyObject *const *arguments, size_t flagged,
                           PyObject *names) {
    struct plan *self = (struct plan *)object;
    struct call_arguments call;
    struct silo_shape shapes[(size_t)self->count + 1];
    call.shapes = shapes;
    call.adapter = NULL;
    call.holds = (struct silo_holds){0, 0, call.buffers, call.objects};
    if (place_all(self, &call, arguments, (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET),
                  names) != 0)
        return NULL;
    int result = 0;
    PyObject *out = NULL;
    for (int32_t i = 0; i < self->count && result == 0; i++)
        result = read_one(self, &call, i);
    /* A replay is not used inside a recording, which records the launches themselves, or if hooks
     * want to see each launch. */
    if (result == 0 && SILO_LIKELY(!silo_hooks_on || (silo_recorder == NULL && !silo_hooks_each)))
        result = serve(self, &call, &out);
    silo_holds_release(&call.holds);
    if (SILO_LIKELY(result > 0))
        return out;
    return result < 0 ? NULL : ask(self, &call);
}

static PyObject *plan_tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, plan_call);
}

/* ---- for Python ---- */

static PyObject *plan_add(PyObject *object, PyObject *description) {
    struct plan *self = (struct plan *)object;
    if (self->form_count == MOST_FORMS)
        Py_RETURN_FALSE;
    struct silo_plan_served *served = silo_plan_form_new(description, self->count);
    if (served == NULL)
        return NULL;
    SILO_LOCK(&self->adding);
    const uint32_t count = self->form_count;
    if (count < MOST_FORMS) {
        self->forms[count] = served;
        __atomic_store_n(&self->form_count, count + 1, __ATOMIC_RELEASE);
    }
    SILO_UNLOCK(&self->adding);
    if (count == MOST_FORMS) {
        silo_plan_form_free(served);
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyObject *plan_forms(PyObject *object, PyObject *unused) {
    const struct plan *self = (struct plan *)object;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < self->form_count && list != NULL; i++) {
        const struct silo_plan_served *served = self->forms[i];
        const struct silo_plan_form *form = &served->form;
        const char *reason = "", *description = "";
        const void *state = served->state[served->state[0] != NULL ? 0 : 1];
        if (served->backend->explain != NULL)
            description = served->backend->explain(state, &reason);
        PyObject *item = Py_BuildValue(
            "(IIIIIIKKss)", form->node_count, form->move_count, form->grid_count, served->streams,
            form->check_count, form->block_bytes, (unsigned long long)served->replays,
            (unsigned long long)served->nanoseconds, description, reason);
        if (item == NULL || PyList_Append(list, item) != 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *name, *names;
    if (!PyArg_ParseTuple(args, "UO!", &name, &PyTuple_Type, &names))
        return NULL;
    (void)keywords;
    const Py_ssize_t count = PyTuple_Size(names);
    if (count > SILO_PLAN_ARGUMENTS)
        return PyErr_Format(silo_argument_error, "%U: a plan has at most %d arguments, not %zd",
                            name, SILO_PLAN_ARGUMENTS, count);
    struct plan *self = (struct plan *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = plan_call;
    self->count = (int32_t)count;
    self->name = Py_NewRef(name);
    self->names = PyTuple_New(count);
    for (Py_ssize_t i = 0; self->names != NULL && i < count; i++) {
        PyObject *text = Py_NewRef(PyTuple_GetItem(names, i));
        if (!PyUnicode_Check(text)) {
            Py_DECREF(text);
            Py_DECREF((PyObject *)self);
            return PyErr_Format(PyExc_TypeError, "names of arguments are strings");
        }
        PyUnicode_InternInPlace(&text);
        PyTuple_SetItem(self->names, i, text);
    }
    if (self->names == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int plan_traverse(PyObject *object, visitproc visit, void *arg) {
    struct plan *self = (struct plan *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    for (uint32_t i = 0; i < self->form_count; i++) {
        Py_VISIT(self->forms[i]->keeps);
        Py_VISIT(self->forms[i]->result);
        for (int32_t k = 0; k < self->forms[i]->count; k++)
            Py_VISIT(self->forms[i]->conditions[k].other);
    }
    return 0;
}

/* There is no tp_clear: every reference cycle through a plan contains a launcher, or the dict of an
 * object of a subclass; clearing these breaks the cycle. */

static void plan_dealloc(PyObject *object) {
    struct plan *self = (struct plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (uint32_t i = 0; i < self->form_count; i++)
        silo_plan_form_free(self->forms[i]);
    Py_XDECREF(self->name);
    Py_XDECREF(self->names);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

int silo_plan_object_init(PyObject *module) {
    static const struct silo_name interned[] = {{&s_miss, "_miss"}};
    if (silo_intern(interned, sizeof interned / sizeof *interned) != 0)
        return -1;
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct plan, call), READONLY, NULL},
        {"replays", T_ULONGLONG, offsetof(struct plan, replays), READONLY,
         "Calls that were replays."},
        {"misses", T_ULONGLONG, offsetof(struct plan, misses), READONLY,
         "Calls of forms that were not there."},
        {"names", T_OBJECT, offsetof(struct plan, names), READONLY, "Of its arguments."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"add", plan_add, METH_O,
         "add(description) -> bool\n\nOne more form, as silo.kernels.plans describes it; False: "
         "there are as many as a plan keeps."},
        {"forms", plan_forms, METH_NOARGS,
         "[(launches, parameters that change, grids that change, streams, checks, bytes of the "
         "block, "
         "replays, nanoseconds in replays, way, reason), ...]"},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)plan_new},
        {Py_tp_dealloc, (void *)plan_dealloc},
        {Py_tp_traverse, (void *)plan_traverse},
        {Py_tp_call, (void *)plan_tuple_call},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_doc, "LaunchPlan(name, names)\n--\n\nCalls replay recorded launches with their "
                    "arguments; calls of other forms go to _miss(arguments)."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.LaunchPlan",
        .basicsize = sizeof(struct plan),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                 Py_TPFLAGS_HAVE_VECTORCALL,
        .slots = slots,
    };
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    const int added = PyModule_AddObjectRef(module, "LaunchPlan", type);
    Py_DECREF(type);
    return added;
}
