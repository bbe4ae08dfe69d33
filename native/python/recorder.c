#include "recorder.h"

#include "cpu_copy.h"
#include "errors.h"
#include "hooks.h"

_Thread_local struct silo_recorder *silo_recorder;

/* ---- recorded launches ---- */

static PyObject *words(const uint64_t *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *word = PyLong_FromUnsignedLongLong(values[i]);
        if (word == NULL || PyTuple_SetItem(tuple, i, word) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *objects(PyObject *const *values, int32_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple != NULL && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(values[i] != NULL ? values[i] : silo_absent));
    return tuple;
}

static PyObject *integers(const int64_t *values, uint32_t count) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (uint32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Returns a tuple of the call's tensor descriptors as they were read, by their number: (address,
 * nan, tf32, shape, strides). */
static PyObject *descriptors(const struct silo_frame *frame) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)frame->descriptors_used);
    for (uint32_t i = 0; tuple != NULL && i < frame->descriptors_used; i++) {
        const struct silo_descriptor *descriptor = &frame->descriptors[i];
        PyObject *row = Py_BuildValue(
            "(KKKNN)", (unsigned long long)descriptor->address, (unsigned long long)descriptor->nan,
            (unsigned long long)descriptor->tf32, integers(descriptor->shape, descriptor->rank),
            integers(descriptor->strides, descriptor->rank));
        if (row == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, row) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Returns the object that the grid comes from (a new reference), or None for the declared grid. */
static PyObject *grid_object(const struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_grid_source *grid,
                             const struct silo_binding *binding) {
    if (silo_recorder->grid != NULL) {
        PyObject *object = silo_recorder->grid;
        silo_recorder->grid = NULL;
        return object;
    }
    if (inputs->grid != NULL && inputs->grid != Py_None)
        return Py_NewRef(inputs->grid);
    if (grid != NULL && grid->object != NULL)
        return Py_NewRef(grid->object);
    if (grid != NULL)
        return Py_BuildValue("(LLL)", (long long)grid->dims[0], (long long)grid->dims[1],
                             (long long)grid->dims[2]);
    if (self->grid_object != NULL && (self->fixed != NULL || binding->grid.axes == 0))
        return Py_NewRef(self->grid_object);
    return Py_NewRef(Py_None);
}

int silo_recorder_add(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid, struct silo_binding *binding,
                      const struct silo_frame *frame, const int64_t dims[3], void *stream) {
    const bool called = silo_recorder->grid != NULL;
    PyObject *options = PyTuple_New((Py_ssize_t)inputs->options),
             *names = PyTuple_New((Py_ssize_t)inputs->options);
    for (uint32_t i = 0; options != NULL && names != NULL && i < inputs->options; i++) {
        PyTuple_SetItem(options, (Py_ssize_t)i, Py_NewRef(inputs->option_value[i]));
        PyTuple_SetItem(names, (Py_ssize_t)i, Py_NewRef(self->plan.options[inputs->option[i]]));
    }
    PyObject *entry = NULL, *grid_value = grid_object(self, inputs, grid, binding),
             *arguments = objects(inputs->arguments, self->plan.count),
             *slots = words(frame->slots, self->plan.count),
             *codes = words(frame->key, self->plan.count), *described = descriptors(frame);
    if (options != NULL && names != NULL && grid_value != NULL && arguments != NULL &&
        slots != NULL && codes != NULL && described != NULL)
        entry = Py_BuildValue("(OOOOO(LLL)OKOiOiO)", (PyObject *)self, (PyObject *)binding,
                              arguments, slots, codes, (long long)dims[0], (long long)dims[1],
                              (long long)dims[2], grid_value, (unsigned long long)(uintptr_t)stream,
                              options, (int)(self->extents.some || self->route == SILO_ROUTE_HELD),
                              names, (int)called, described);
    Py_XDECREF(options);
    Py_XDECREF(names);
    Py_XDECREF(described);
    Py_XDECREF(grid_value);
    Py_XDECREF(arguments);
    Py_XDECREF(slots);
    Py_XDECREF(codes);
    const int result = entry != NULL ? PyList_Append(silo_recorder->launches, entry) : -1;
    Py_XDECREF(entry);
    return result;
}

struct silo_binding *silo_recorder_binding(struct silo_launcher *self) {
    if (silo_recorder->bindings == NULL) {
        PyErr_Format(PyExc_TypeError, "%U has no code for this call yet", self->plan.kernel);
        return NULL;
    }
    const Py_ssize_t next = PyList_Size(silo_recorder->launches);
    PyObject *next_binding = next < PyList_Size(silo_recorder->bindings)
                                 ? PyList_GetItem(silo_recorder->bindings, next)
                                 : NULL;
    if (next_binding == NULL || PyTuple_GetItem(next_binding, 0) != (PyObject *)self) {
        PyErr_Clear();
        PyErr_Format(silo_argument_error,
                     "%U: the function that is recorded made another launch in this place the "
                     "first time",
                     self->plan.kernel);
        return NULL;
    }
    return (struct silo_binding *)Py_NewRef(PyTuple_GetItem(next_binding, 1));
}

void silo_recorder_grid(PyObject *grid) {
    if (silo_recorder != NULL) {
        Py_XDECREF(silo_recorder->grid);
        silo_recorder->grid = Py_NewRef(grid);
    }
}

void silo_recorder_refuse(PyObject *kernel, PyObject *reason) {
    PyObject *text =
        reason != NULL
            ? PyUnicode_FromFormat(
                  "%S is launched by Triton itself, which a plan does not record: %S", kernel,
                  reason)
            : PyUnicode_FromFormat("%S is launched by Triton itself, which a plan does not record",
                                   kernel);
    if (text == NULL || PyList_Append(silo_recorder->launches, text) != 0)
        PyErr_WriteUnraisable(kernel);
    Py_XDECREF(text);
}

/* ---- for Python ---- */

static PyObject *py_record(PyObject *module, PyObject *args) {
    PyObject *launches, *bindings = Py_None;
    int dry = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!|pO", &PyList_Type, &launches, &dry, &bindings))
        return NULL;
    if (bindings != Py_None && !PyList_Check(bindings))
        return PyErr_Format(PyExc_TypeError, "an earlier recording is a list");
    struct silo_recorder *recorder = PyMem_Calloc(1, sizeof *recorder);
    if (recorder == NULL)
        return PyErr_NoMemory();
    recorder->dry = dry != 0;
    recorder->launches = Py_NewRef(launches);
    recorder->bindings = bindings != Py_None ? Py_NewRef(bindings) : NULL;
    recorder->outer = silo_recorder;
    silo_recorder = recorder;
    silo_hooks_record(1);
    Py_RETURN_NONE;
}

static PyObject *py_record_end(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    struct silo_recorder *recorder = silo_recorder;
    if (recorder == NULL)
        return PyErr_Format(PyExc_RuntimeError, "nothing is recorded in this thread");
    silo_recorder = recorder->outer;
    silo_hooks_record(-1);
    Py_DECREF(recorder->launches);
    Py_XDECREF(recorder->bindings);
    Py_XDECREF(recorder->grid);
    PyMem_Free(recorder);
    Py_RETURN_NONE;
}

static PyObject *py_recording(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_NewRef(silo_recorder != NULL ? silo_recorder->launches : Py_None);
}

static PyObject *py_copy_kernels(PyObject *module, PyObject *unused) {
    silo_cpu_entry *const copy = silo_cpu_copy, *const fill = silo_cpu_fill;
    uintptr_t addresses[2];
    (void)module, (void)unused;
    memcpy(&addresses[0], &copy, sizeof copy);
    memcpy(&addresses[1], &fill, sizeof fill);
    return Py_BuildValue("(KK)", (unsigned long long)addresses[0],
                         (unsigned long long)addresses[1]);
}

PyMethodDef silo_recorder_methods[] = {
    {"copy_kernels", py_copy_kernels, METH_NOARGS,
     "copy_kernels() -> (copy, fill)\n\nAddresses of the CPU's kernels for buffers: (to, from, "
     "bytes) and (to, byte, bytes)."},
    {"record", py_record, METH_VARARGS,
     "record(launches, dry=False, known=None)\n\nAppend this thread's launches to a list until "
     "record_end(). Dry, nothing is launched; kernels that have no code for a call take that of an "
     "earlier recording."},
    {"record_end", py_record_end, METH_NOARGS, "End this thread's last record()."},
    {"recording", py_recording, METH_NOARGS,
     "The list that launches of this thread go to, or None."},
    {NULL, NULL, 0, NULL},
};
