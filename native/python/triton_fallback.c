#include "triton_fallback.h"

#include "errors.h"
#include "flat.h"
#include "memory_types.h"
#include "miss.h"
#include "names.h"
#include "recorder.h"
#include "stack.h"

PyTypeObject *silo_triton_settings_type;
struct silo_triton_settings *silo_triton_settings;
PyObject *silo_triton_run, *silo_triton_compiled;

static PyObject *notice;  /* owned callable: makes a new TritonSituation */
static PyObject *partial; /* owned: functools.partial */
#define MOST_REASONS 32   /* the most reasons by which a kernel's launches are counted */

static PyObject *s_grid, *s_warmup, *s_launch_metadata;

/* ---- settings ---- */

static int read_watched(struct silo_triton_settings *self, PyObject *watched, PyObject *sizes) {
    const Py_ssize_t count = PyTuple_Size(watched), size_count = PyTuple_Size(sizes);
    self->watched = PyMem_Calloc((size_t)count + 1, sizeof *self->watched);
    self->sizes = PyMem_Calloc((size_t)size_count + 1, sizeof *self->sizes);
    if (self->watched == NULL || self->sizes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *dict, *name, *value = NULL;
        if (!PyArg_ParseTuple(PyTuple_GetItem(watched, i), "O!O|O", &PyDict_Type, &dict, &name,
                              &value))
            return -1;
        self->watched[i] = (struct silo_watched){Py_NewRef(dict), Py_NewRef(name), value};
        Py_XINCREF(value);
        self->watched_count = i + 1;
    }
    for (Py_ssize_t i = 0; i < size_count; i++) {
        PyObject *container = PyTuple_GetItem(sizes, i);
        const bool is_list = PyList_Check(container);
        if (!is_list && !PyDict_Check(container)) {
            PyErr_SetString(PyExc_TypeError, "sizes are given of lists and dictionaries");
            return -1;
        }
        self->sizes[i] = (struct silo_watched_size){
            Py_NewRef(container), is_list ? PyList_Size(container) : PyDict_Size(container),
            is_list};
        self->size_count = i + 1;
    }
    return 0;
}

static PyObject *settings_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {
        "watched", "sizes",        "get_device",   "get_stream", "memory_type", "epoch",
        "blocked", "torch_stream", "torch_device", "enter",      "leave",       "allocate",
        NULL};
    PyObject *watched, *sizes, *get_device, *get_stream, *enter, *leave, *allocate;
    int memory_type, blocked, torch_stream, torch_device;
    unsigned int epoch;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!OOiIpppOOO", names, &PyTuple_Type,
                                     &watched, &PyTuple_Type, &sizes, &get_device, &get_stream,
                                     &memory_type, &epoch, &blocked, &torch_stream, &torch_device,
                                     &enter, &leave, &allocate))
        return NULL;
    struct silo_triton_settings *self = (struct silo_triton_settings *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->memory_type = memory_type;
    self->epoch = epoch;
    self->blocked = blocked != 0;
    self->torch_stream = torch_stream != 0;
    self->torch_device = torch_device != 0;
    self->get_device = get_device == Py_None ? NULL : Py_NewRef(get_device);
    self->get_stream = get_stream == Py_None ? NULL : Py_NewRef(get_stream);
    if (enter != Py_None || leave != Py_None) {
        self->enter = Py_NewRef(enter);
        self->leave = Py_NewRef(leave);
    }
    self->allocate = allocate == Py_None ? NULL : Py_NewRef(allocate);
    if (read_watched(self, watched, sizes) != 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int settings_traverse(PyObject *object, visitproc visit, void *arg) {
    struct silo_triton_settings *self = (struct silo_triton_settings *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    for (Py_ssize_t i = 0; i < self->watched_count; i++) {
        Py_VISIT(self->watched[i].dict);
        Py_VISIT(self->watched[i].value);
    }
    for (Py_ssize_t i = 0; i < self->size_count; i++)
        Py_VISIT(self->sizes[i].container);
    Py_VISIT(self->get_device);
    Py_VISIT(self->get_stream);
    Py_VISIT(self->enter);
    Py_VISIT(self->leave);
    Py_VISIT(self->allocate);
    return 0;
}

static void settings_dealloc(PyObject *object) {
    struct silo_triton_settings *self = (struct silo_triton_settings *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (Py_ssize_t i = 0; i < self->watched_count; i++) {
        Py_XDECREF(self->watched[i].dict);
        Py_XDECREF(self->watched[i].name);
        Py_XDECREF(self->watched[i].value);
    }
    for (Py_ssize_t i = 0; i < self->size_count; i++)
        Py_XDECREF(self->sizes[i].container);
    PyMem_Free(self->watched);
    PyMem_Free(self->sizes);
    Py_XDECREF(self->get_device);
    Py_XDECREF(self->get_stream);
    Py_XDECREF(self->enter);
    Py_XDECREF(self->leave);
    Py_XDECREF(self->allocate);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

SILO_INLINE bool holds(const struct silo_triton_settings *self) {
    for (Py_ssize_t i = 0; i < self->size_count; i++) {
        const struct silo_watched_size *size = &self->sizes[i];
        if (SILO_UNLIKELY((size->is_list ? PyList_Size(size->container)
                                         : PyDict_Size(size->container)) != size->size))
            return false;
    }
    for (Py_ssize_t i = 0; i < self->watched_count; i++) {
        const struct silo_watched *member = &self->watched[i];
        if (SILO_UNLIKELY(PyDict_GetItemWithError(member->dict, member->name) != member->value))
            return false;
    }
    return true;
}

struct silo_triton_settings *silo_triton_settings_now(void) {
    struct silo_triton_settings *now = silo_triton_settings;
    if (SILO_LIKELY(now != NULL && holds(now))) {
        Py_INCREF((PyObject *)now);
        return now;
    }
    if (PyErr_Occurred() || notice == NULL)
        return NULL;
    PyObject *settings = PyObject_CallNoArgs(notice);
    if (settings == NULL)
        return NULL;
    if (!PyObject_TypeCheck(settings, silo_triton_settings_type)) {
        Py_DECREF(settings);
        PyErr_SetString(PyExc_TypeError, "notice gives a TritonSituation");
        return NULL;
    }
    return (struct silo_triton_settings *)settings;
}

PyObject *silo_py_triton_settings(PyObject *module, PyObject *settings) {
    (void)module;
    if (settings != Py_None && !PyObject_TypeCheck(settings, silo_triton_settings_type))
        return PyErr_Format(PyExc_TypeError, "a TritonSituation or None");
    struct silo_triton_settings *old = silo_triton_settings;
    silo_triton_settings =
        settings == Py_None ? NULL : (struct silo_triton_settings *)Py_NewRef(settings);
    Py_XDECREF((PyObject *)old);
    Py_RETURN_NONE;
}

PyObject *silo_py_triton_serve(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *run, *callback;
    if (!PyArg_ParseTuple(args, "OO", &run, &callback))
        return NULL;
    PyObject *old_run = silo_triton_run, *old_notice = notice;
    silo_triton_run = Py_NewRef(run);
    notice = Py_NewRef(callback);
    Py_XDECREF(old_run);
    Py_XDECREF(old_notice);
    Py_RETURN_NONE;
}

/* ---- launches that Triton makes ---- */

/* Makes the arguments of Triton's own call: a tuple of the function and the positional arguments,
 * and a dict of the named ones. Returns -1 with an exception set. */
static int own_arguments(const struct silo_triton_call *call, PyObject **args,
                         PyObject **keywords) {
    *keywords = PyDict_New();
    *args = PyTuple_New(call->positional + 1);
    if (*args == NULL || *keywords == NULL)
        return -1;
    PyTuple_SetItem(*args, 0, Py_NewRef(call->function));
    for (Py_ssize_t i = 0; i < call->positional; i++)
        PyTuple_SetItem(*args, i + 1, Py_NewRef(call->arguments[i]));
    if (call->grid != NULL && !call->compiled &&
        (PyDict_SetItem(*keywords, s_grid, call->grid) != 0 ||
         PyDict_SetItem(*keywords, s_warmup, Py_False) != 0))
        return -1;
    const Py_ssize_t named = call->names != NULL ? PyTuple_Size(call->names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(call->names, i);
        if (call->grid != NULL && PyDict_Contains(*keywords, name) == 1) {
            PyErr_Format(PyExc_TypeError, "%R got multiple values for keyword argument '%U'",
                         silo_triton_run, name);
            return -1;
        }
        if (PyDict_SetItem(*keywords, name, call->arguments[call->positional + i]) != 0)
            return -1;
    }
    return 0;
}

/* Counts a launch by its reason, and reports the reason if it is new; -1 with an exception set. */
static int count_reason(struct silo_triton_kernel *launched, PyObject *reason) {
    struct silo_triton_kernel *kernel = silo_triton_counted(launched);
    if (kernel->reasons == NULL && (kernel->reasons = PyDict_New()) == NULL)
        return -1;
    PyObject *old_count = PyDict_GetItemWithError(kernel->reasons, reason);
    if (old_count == NULL && PyErr_Occurred())
        return -1;
    const bool first = old_count == NULL;
    if (first && PyDict_Size(kernel->reasons) >= MOST_REASONS) {
        PyObject *other = PyUnicode_FromString("other reasons, too many to count");
        old_count = other != NULL ? PyDict_GetItemWithError(kernel->reasons, other) : NULL;
        const uint64_t count = old_count != NULL ? PyLong_AsUnsignedLongLong(old_count) : 0;
        PyObject *now = PyLong_FromUnsignedLongLong(count + 1);
        const int result = now != NULL ? PyDict_SetItem(kernel->reasons, other, now) : -1;
        Py_XDECREF(now);
        Py_XDECREF(other);
        return result;
    }
    PyObject *now =
        PyLong_FromUnsignedLongLong((first ? 0 : PyLong_AsUnsignedLongLong(old_count)) + 1);
    int result = now != NULL ? PyDict_SetItem(kernel->reasons, reason, now) : -1;
    Py_XDECREF(now);
    if (result == 0 && first && kernel->on_reason != NULL) {
        PyObject *on_reason = Py_NewRef(kernel->on_reason);
        PyObject *report = silo_call_one(on_reason, reason);
        Py_DECREF(on_reason);
        Py_XDECREF(report);
        result = report != NULL ? 0 : -1;
    }
    return result;
}

/* Returns the compiled[grid] that Triton makes, a new reference. */
static PyObject *runner_of(const struct silo_triton_call *call) {
    PyObject *pair = PyTuple_Pack(2, call->function, call->grid);
    PyObject *runner = pair != NULL ? PyObject_Call(silo_triton_compiled, pair, NULL) : NULL;
    Py_XDECREF(pair);
    return runner;
}

/* Returns Triton's compiled[grid](*args[1:], **keywords). */
static PyObject *call_compiled(const struct silo_triton_call *call, PyObject *args,
                               PyObject *keywords) {
    PyObject *runner = runner_of(call);
    PyObject *arguments = runner != NULL ? PyTuple_GetSlice(args, 1, call->positional + 1) : NULL;
    PyObject *result = arguments != NULL ? PyObject_Call(runner, arguments, keywords) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(runner);
    return result;
}

PyObject *silo_triton_fall_back(struct silo_triton_call *call, PyObject *reason) {
    PyObject *args, *keywords, *result = NULL;
    call->may_have_run = true;
    if (SILO_UNLIKELY(silo_recorder != NULL))
        silo_recorder_refuse(call->function, reason);
    if (SILO_UNLIKELY(silo_recorder_is_dry()))
        return PyErr_Format(PyExc_TypeError, "%S is launched by Triton itself: %S", call->function,
                            reason != NULL ? reason : Py_None);
    if (own_arguments(call, &args, &keywords) == 0)
        result = call->compiled ? call_compiled(call, args, keywords)
                                : PyObject_Call(silo_triton_run, args, keywords);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    if (result != NULL && call->kernel != NULL && reason != NULL) {
        silo_triton_counted(call->kernel)->own_launches++;
        if (count_reason(call->kernel, reason) != 0)
            /* The launch has been made, so a failed count is no error. */
            PyErr_WriteUnraisable(call->function);
    }
    return result;
}

PyObject *silo_triton_fall_back_for(struct silo_triton_call *call, const char *reason) {
    PyObject *text = PyUnicode_FromString(reason);
    PyObject *result = text != NULL ? silo_triton_fall_back(call, text) : NULL;
    Py_XDECREF(text);
    return result;
}

/* Returns the reason, a new str, why Triton makes a call: the guard does not read the type of this
 * argument. */
static PyObject *kind_of_argument(PyObject *name, PyObject *argument) {
    if (PyTuple_Check(argument))
        return PyUnicode_FromFormat("the argument %U is a tuple", name);
    PyObject *kind = PyType_GetQualName(Py_TYPE(argument));
    PyObject *text =
        kind != NULL
            ? PyUnicode_FromFormat("the argument %U is a %U that Silo does not pass", name, kind)
            : NULL;
    Py_XDECREF(kind);
    return text;
}

PyObject *silo_triton_fall_back_refused(struct silo_triton_call *call, PyObject *entry) {
    PyObject *reason =
        PyUnicode_Check(entry) ? Py_NewRef(entry) : PyObject_GetAttrString(entry, "reason");
    PyObject *result = reason != NULL ? silo_triton_fall_back(call, reason) : NULL;
    Py_XDECREF(reason);
    return result;
}

PyObject *silo_triton_fall_back_unread(const struct silo_plan *plan,
                                       const struct silo_inputs *inputs, int32_t failed) {
    PyObject *error = silo_take_exception(), *reason = NULL;
    if (failed >= 0 && failed < plan->count && inputs->arguments[failed] != NULL)
        reason = kind_of_argument(plan->names[failed], inputs->arguments[failed]);
    else
        reason = error != NULL ? PyObject_Str(error) : NULL;
    Py_XDECREF(error);
    PyObject *result = reason != NULL ? silo_triton_fall_back(inputs->triton, reason) : NULL;
    Py_XDECREF(reason);
    return result;
}

/* ---- Triton's hooks of launches ---- */

/* Returns the grid as the program gave it, a new reference. */
static PyObject *grid_of(const struct silo_triton_call *call, const int64_t dims[3]) {
    if (call->dims != NULL)
        return Py_NewRef(call->dims);
    PyObject *grid = call->grid != NULL ? call->grid : call->named;
    if (grid != NULL)
        return Py_NewRef(grid);
    return Py_BuildValue("(LLL)", (long long)dims[0], (long long)dims[1], (long long)dims[2]);
}

PyObject *silo_triton_enter(struct silo_triton_call *call, PyObject *tag,
                            PyObject *const *arguments, int32_t count, const int64_t dims[3]) {
    PyObject *const enter = call->settings->enter;
    PyObject *grid = grid_of(call, dims), *stream = PyLong_FromVoidPtr(call->stream);
    PyObject *method = PyObject_GetAttr(call->compiled ? call->function : tag, s_launch_metadata);
    PyObject *all = PyTuple_New(count + 2), *metadata = NULL, *result = NULL;
    call->may_have_run = true; /* the call must not be repeated, because hooks are called once */
    if (grid != NULL && stream != NULL && method != NULL && all != NULL) {
        PyTuple_SetItem(all, 0, Py_NewRef(grid));
        PyTuple_SetItem(all, 1, Py_NewRef(stream));
        for (int32_t i = 0; i < count; i++)
            PyTuple_SetItem(all, i + 2, Py_NewRef(arguments[i] ? arguments[i] : Py_None));
        metadata = PyObject_Call(method, all, NULL);
    }
    Py_XDECREF(grid);
    Py_XDECREF(stream);
    Py_XDECREF(method);
    Py_XDECREF(all);
    if (metadata == NULL || enter == Py_None)
        return metadata;
    result = silo_call_one(enter, metadata);
    if (result == NULL)
        Py_CLEAR(metadata);
    Py_XDECREF(result);
    return metadata;
}

int silo_triton_leave(const struct silo_triton_call *call, PyObject *metadata) {
    if (call->settings->leave == Py_None)
        return 0;
    PyObject *result = silo_call_one(call->settings->leave, metadata);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

PyObject *silo_triton_by(PyObject *run, const struct silo_triton_call *call) {
    PyObject *args, *keywords, *result = NULL;
    if (own_arguments(call, &args, &keywords) == 0) {
        PyObject *arguments = PyTuple_GetSlice(args, 1, call->positional + 1);
        result = arguments != NULL ? PyObject_Call(run, arguments, keywords) : NULL;
        Py_XDECREF(arguments);
    }
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return result;
}

/* Returns a functools.partial that makes the call through Triton when it is called without
 * arguments. */
static PyObject *fall_back_later(const struct silo_triton_call *call) {
    PyObject *args, *keywords, *result = NULL;
    if (own_arguments(call, &args, &keywords) == 0) {
        /* For a compiled kernel, the first argument is left out, because `compiled[grid]` already
         * holds the kernel. */
        const Py_ssize_t first = call->compiled ? 1 : 0;
        PyObject *run = call->compiled ? runner_of(call) : Py_NewRef(silo_triton_run);
        PyObject *all = run != NULL ? PyTuple_New(call->positional + 2 - first) : NULL;
        if (all != NULL) {
            PyTuple_SetItem(all, 0, Py_NewRef(run));
            for (Py_ssize_t i = first; i <= call->positional; i++)
                PyTuple_SetItem(all, i + 1 - first, Py_NewRef(PyTuple_GetItem(args, i)));
            result = PyObject_Call(partial, all, keywords);
            Py_DECREF(all);
        }
        Py_XDECREF(run);
    }
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return result;
}

/* ---- one call ---- */

/* Returns whether only one device exists, which is then device 0. The driver is open once a kernel
 * is loaded. */
SILO_INLINE bool has_one_device(const struct silo_triton_settings *now) {
    const struct silo_gpu *gpu = now->torch_device ? silo_gpu_of_memory(now->memory_type) : NULL;
    return gpu != NULL && gpu->device_count == 1;
}

static SILO_NOINLINE int ask_stream(const struct silo_triton_settings *now,
                                    struct silo_triton_call *call) {
    PyObject *device = PyLong_FromLong(call->device);
    PyObject *stream = device != NULL ? silo_call_one(now->get_stream, device) : NULL;
    call->stream = stream != NULL ? PyLong_AsVoidPtr(stream) : NULL;
    Py_XDECREF(device);
    Py_XDECREF(stream);
    return PyErr_Occurred() ? -1 : 0;
}

int silo_triton_find_queue(struct silo_triton_call *call) {
    const struct silo_triton_settings *now = call->settings;
    call->device = 0;
    call->stream = NULL;
    if (now->get_device == NULL)
        return 0;
    if (!has_one_device(now)) {
        PyObject *device = PyObject_CallNoArgs(now->get_device);
        const long number = device != NULL ? PyLong_AsLong(device) : -1;
        Py_XDECREF(device);
        if (number == -1 && PyErr_Occurred())
            return -1;
        call->device = (int32_t)number;
    }
    if (SILO_LIKELY(now->torch_stream) && SILO_LIKELY(silo_torch.current_stream != NULL) &&
        SILO_LIKELY(silo_torch.current_stream(call->device, &call->stream) == 0))
        return 0;
    return now->get_stream != NULL ? ask_stream(now, call) : 0;
}

/* Returns the present value of a global, borrowed; NULL if it is gone. */
static PyObject *value_now(PyObject *key, PyObject *pair) {
    if (!PyTuple_Check(key) || !PyTuple_Check(pair) || PyTuple_Size(key) != 2 ||
        PyTuple_Size(pair) != 2 || !PyDict_Check(PyTuple_GetItem(pair, 1)))
        return NULL;
    return PyDict_GetItemWithError(PyTuple_GetItem(pair, 1), PyTuple_GetItem(key, 0));
}

/* Compares a global's value with the copy that Triton keeps. If they are equal, the value is
 * remembered, so that its address is enough for the next comparison. */
static SILO_NOINLINE bool is_unchanged(const struct silo_triton_kernel *kernel, Py_ssize_t index,
                                       PyObject *now, PyObject *pair) {
    PyObject *value = Py_NewRef(PyTuple_GetItem(pair, 0));
    Py_INCREF(now);
    const bool same = PyObject_RichCompareBool(now, value, Py_NE) == 0;
    Py_DECREF(value);
    PyErr_Clear(); /* Triton raises the error of the comparison */
    if (same && index < PyList_Size(kernel->values))
        PyList_SetItem(kernel->values, index, Py_NewRef(now));
    Py_DECREF(now);
    return same;
}

bool silo_triton_globals_hold(const struct silo_triton_kernel *kernel) {
    PyObject *key, *pair;
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; PyDict_Next(kernel->globals, &position, &key, &pair); i++) {
        PyObject *now = value_now(key, pair);
        if (SILO_UNLIKELY(now == NULL || i >= PyList_Size(kernel->values))) {
            PyErr_Clear();
            return false;
        }
        if (SILO_UNLIKELY(now != PyList_GetItem(kernel->values, i)) &&
            !is_unchanged(kernel, i, now, pair))
            return false;
    }
    return true;
}

static bool is_capturing(const struct silo_frame *frame, const struct silo_triton_call *call) {
    const struct silo_gpu *gpu = silo_gpu_of_memory(frame->device_type);
    int status = 0;
    return gpu != NULL && call->stream != NULL &&
           gpu->stream_capturing(call->stream, &status) == 0 && status != 0;
}

/* Returns the arguments of on_miss: (facts, function, later). `facts` is the tuple of
 * silo_call_facts, and later() makes the call through Triton. */
static PyObject *question(struct silo_launcher *self, const struct silo_inputs *inputs,
                          const struct silo_grid_source *grid, const struct silo_frame *frame) {
    PyObject *facts = silo_call_facts(self, inputs, grid, frame), *all = NULL;
    PyObject *later = fall_back_later(inputs->triton);
    if (facts != NULL && later != NULL)
        all = PyTuple_Pack(3, facts, inputs->triton->function, later);
    Py_XDECREF(facts);
    Py_XDECREF(later);
    return all;
}

PyObject *silo_triton_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid, struct silo_frame *frame,
                           uint64_t hash, PyObject **result) {
    *result = NULL;
    if (is_capturing(frame, inputs->triton)) { /* nothing may be loaded during a capture */
        *result = silo_triton_fall_back_for(
            inputs->triton,
            "a new kind of call while its stream is captured, when nothing is loaded");
        return NULL;
    }
    self->misses++;
    frame->ran = SILO_RAN_PROGRAM;
    inputs->triton->may_have_run = true;
    PyObject *question_args = silo_stack_check() == 0 ? question(self, inputs, grid, frame) : NULL;
    /* The member may be replaced or cleared while the call runs. */
    PyObject *on_miss = Py_NewRef(self->on_miss);
    PyObject *answer = question_args != NULL ? PyObject_Call(on_miss, question_args, NULL) : NULL;
    Py_DECREF(on_miss);
    Py_XDECREF(question_args);
    PyObject *entry, *call_result;
    if (answer == NULL)
        return NULL;
    if (!PyArg_ParseTuple(answer, "OO;on_miss gives what serves such calls, and a result", &entry,
                          &call_result)) {
        Py_DECREF(answer);
        return NULL;
    }
    if (call_result != silo_absent) {
        *result = Py_NewRef(call_result);
        silo_triton_counted(inputs->triton->kernel)->own_launches++;
    }
    entry = entry != silo_absent ? silo_miss_keep(self, inputs, frame, entry, hash) : NULL;
    if (entry == NULL && PyErr_Occurred())
        Py_CLEAR(*result);
    Py_DECREF(answer);
    return entry;
}

int silo_triton_fallback_init(PyObject *module) {
    static const struct silo_name names[] = {
        {&s_grid, "grid"}, {&s_warmup, "warmup"}, {&s_launch_metadata, "launch_metadata"}};
    static PyMemberDef settings_members[] = {
        {"passed", T_ULONGLONG, offsetof(struct silo_triton_settings, passed), READONLY,
         "Launches that went Triton's way because it is blocked."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot settings_slots[] = {
        {Py_tp_new, (void *)settings_new},
        {Py_tp_dealloc, (void *)settings_dealloc},
        {Py_tp_traverse, (void *)settings_traverse},
        {Py_tp_members, settings_members},
        {Py_tp_doc, "TritonSituation(watched, sizes, get_device, get_stream, memory_type, epoch, "
                    "blocked, torch_stream, torch_device, enter, leave, allocate)\n--\n\nWhat "
                    "decides launches of Triton "
                    "programs now."},
        {0, NULL},
    };
    static PyType_Spec settings_spec = {"silo._native.TritonSituation",
                                        sizeof(struct silo_triton_settings), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, settings_slots};
    PyObject *functools = PyImport_ImportModule("functools");
    partial = functools ? PyObject_GetAttrString(functools, "partial") : NULL;
    Py_XDECREF(functools);
    if (partial == NULL || silo_intern(names, sizeof names / sizeof *names) != 0)
        return -1;
    silo_triton_settings_type = (PyTypeObject *)PyType_FromSpec(&settings_spec);
    return silo_triton_settings_type ? PyModule_AddObjectRef(module, "TritonSituation",
                                                             (PyObject *)silo_triton_settings_type)
                                     : -1;
}
