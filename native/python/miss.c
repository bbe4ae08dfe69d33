#include "miss.h"

#include "binding.h"
#include "constants.h"
#include "errors.h"
#include "memory_types.h"
#include "placement.h"
#include "stack.h"
#include "stream.h"

/* Returns whether the exception that is set is due to an impossible shape. */
static bool is_wrong_shape(void) {
    return PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_OverflowError);
}

static PyObject *fact_of(const struct silo_plan *plan, int32_t index, PyObject *object,
                         uint64_t code, PyObject *extents) {
    long long ndim = -1;
    const unsigned flags = silo_code_flags(code);
    if (silo_code_kind(code) == SILO_VALUE_POINTER) {
        struct silo_shape shape;
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
        if (adapter == NULL)
            return NULL;
        if (silo_shape_read(object, adapter, &shape) == 0) {
            ndim = shape.ndim;
        } else if (is_wrong_shape()) {
            silo_bad_argument(plan->kernel, plan->names[index], "an array with a shape", object);
            return NULL;
        } else {
            silo_forget_error(); /* a duck-typed array may have an address and no shape */
        }
    }
    if (silo_code_kind(code) == SILO_VALUE_DESCRIPTOR)
        /* For a descriptor, the member `ndim` of the facts holds the bits of the block shape (the
         * rank in its low bits) and of the block's layout. */
        ndim = (long long)(code >> SILO_BLOCK_SHIFT & UINT64_C(0xffffffff));
    return Py_BuildValue("(iiiiLO)", (int)silo_code_kind(code), (int)silo_code_type(code),
                         (int)silo_code_bits(code), (int)flags, ndim, extents);
}

/* Returns the grid of the call or the launcher, or None; a new reference. */
static PyObject *given_grid(const struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_grid_source *grid) {
    if (inputs->grid != NULL) {
        Py_INCREF(inputs->grid);
        return inputs->grid;
    }
    if (grid == NULL && self->grid_object != NULL)
        grid = &self->grid;
    PyObject *grid_object = Py_None;
    if (grid != NULL && grid->callable == NULL)
        return Py_BuildValue("(LLL)", (long long)grid->dims[0], (long long)grid->dims[1],
                             (long long)grid->dims[2]);
    if (grid != NULL)
        grid_object = grid->callable;
    Py_INCREF(grid_object);
    return grid_object;
}

PyObject *silo_call_facts(struct silo_launcher *self, const struct silo_inputs *inputs,
                          const struct silo_grid_source *grid, const struct silo_frame *frame) {
    const int32_t count = self->plan.count;
    PyObject *facts = PyTuple_New(count), *arguments = PyTuple_New(count), *options = PyDict_New();
    PyObject *extents = self->route == SILO_ROUTE_HELD
                            ? silo_extents_facts(&self->plan, &self->extents, frame)
                            : NULL;
    bool failed = facts == NULL || arguments == NULL || options == NULL ||
                  (extents == NULL && self->route == SILO_ROUTE_HELD);
    for (int32_t i = 0; i < count && !failed; i++) {
        PyObject *object = inputs->arguments[i] ? inputs->arguments[i] : silo_absent;
        PyObject *fact = fact_of(&self->plan, i, object, frame->key[i],
                                 extents ? PyTuple_GetItem(extents, i) : Py_None);
        Py_INCREF(object);
        failed = PyTuple_SetItem(arguments, i, object) != 0 || fact == NULL ||
                 PyTuple_SetItem(facts, i, fact) != 0;
    }
    for (uint32_t i = 0; i < inputs->options && !failed; i++)
        failed = PyDict_SetItem(options, self->plan.options[inputs->option[i]],
                                inputs->option_value[i]) != 0;
    PyObject *result = NULL;
    PyObject *source = failed ? NULL : given_grid(self, inputs, grid);
    if (source != NULL)
        result = Py_BuildValue("(OOO(ii)O)", facts, arguments, options, (int)frame->device_type,
                               (int)frame->device_id, source);
    Py_XDECREF(source);
    Py_XDECREF(extents);
    Py_XDECREF(facts);
    Py_XDECREF(arguments);
    Py_XDECREF(options);
    return result;
}

/* Returns (arguments, options, grid) of a call, without reading any argument; a new reference. */
static PyObject *unread_call(const struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_grid_source *grid) {
    PyObject *arguments = PyTuple_New(self->plan.count), *options = PyDict_New(), *result = NULL;
    bool failed = arguments == NULL || options == NULL;
    for (int32_t i = 0; i < self->plan.count && !failed; i++) {
        PyObject *object = inputs->arguments[i] ? inputs->arguments[i] : silo_absent;
        Py_INCREF(object);
        failed = PyTuple_SetItem(arguments, i, object) != 0;
    }
    for (uint32_t i = 0; i < inputs->options && !failed; i++)
        failed = PyDict_SetItem(options, self->plan.options[inputs->option[i]],
                                inputs->option_value[i]) != 0;
    PyObject *source = failed ? NULL : given_grid(self, inputs, grid);
    if (source != NULL)
        result = Py_BuildValue("(OOO)", arguments, options, source);
    Py_XDECREF(source);
    Py_XDECREF(arguments);
    Py_XDECREF(options);
    return result;
}

PyObject *silo_unread(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid) {
    if (self->on_unread == NULL || !PyErr_ExceptionMatches(silo_argument_error) ||
        (inputs->stream != NULL && inputs->stream != Py_None))
        return NULL;
    PyObject *error = silo_take_exception();
    PyObject *on_unread = self->on_unread; /* the member may be cleared while the call runs */
    Py_INCREF(on_unread);
    PyObject *call = unread_call(self, inputs, grid);
    PyObject *answer = call ? PyObject_Call(on_unread, call, NULL) : NULL;
    Py_DECREF(on_unread);
    Py_XDECREF(call);
    const int served = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (served == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return served > 0 ? Py_NewRef(Py_None) : NULL;
}

PyObject *silo_call_mapping(struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_binding *binding) {
    PyObject *mapping = PyDict_Copy(binding->config);
    bool failed = mapping == NULL;
    for (int32_t i = 0; i < self->plan.count && !failed; i++) {
        if (inputs->arguments[i] != NULL)
            failed = PyDict_SetItem(mapping, self->plan.names[i], inputs->arguments[i]) != 0;
    }
    /* Triton's grid functions receive the arguments and the config, but no options. */
    const uint32_t options = self->route == SILO_ROUTE_TRITON ? 0 : inputs->options;
    for (uint32_t i = 0; i < options && !failed; i++)
        failed = PyDict_SetItem(mapping, self->plan.options[inputs->option[i]],
                                inputs->option_value[i]) != 0;
    if (failed)
        Py_CLEAR(mapping);
    return mapping;
}

int silo_binding_check_device(const struct silo_launcher *self, const struct silo_binding *binding,
                              const struct silo_frame *frame) {
    const struct silo_driver *driver = binding->loaded->driver;
    const struct silo_function *function = &binding->loaded->function;
    const int32_t type = frame->device_type;
    if (type != SILO_DEVICE_UNKNOWN && type == function->memory_type &&
        frame->device_id != function->device_index) {
        if (frame->device_from == SILO_NO_PARAMETER)
            PyErr_Format(silo_argument_error,
                         "%U: a call without arrays goes to the current device, which is %s:%d, "
                         "and this code is loaded on %s:%d",
                         self->plan.kernel, driver->name, (int)frame->device_id, driver->name,
                         (int)function->device_index);
        else
            PyErr_Format(silo_argument_error,
                         "%U: argument '%U' is on %s:%d, and this code is loaded on %s:%d",
                         self->plan.kernel, self->plan.names[frame->device_from], driver->name,
                         (int)frame->device_id, driver->name, (int)function->device_index);
        return -1;
    }
    if (type == SILO_DEVICE_UNKNOWN ||
        (type > 0 && type < 32 && (driver->device_types >> type & 1)))
        return 0;
    if (frame->device_from == SILO_NO_PARAMETER) {
        PyErr_Format(silo_argument_error,
                     "%U: a call without arrays goes to the current device, which is %s:%d, and "
                     "this is %s code",
                     self->plan.kernel, silo_memory_type(type)->name, (int)frame->device_id,
                     driver->name);
        return -1;
    }
    PyErr_Format(
        silo_argument_error,
        "%U: argument '%U' is in memory of %s (DLPack device type %d), which %s code cannot use",
        self->plan.kernel, self->plan.names[frame->device_from], silo_memory_type(type)->name,
        (int)type, driver->name);
    return -1;
}

/* Checks that arrays lie at a multiple of their element size, as code for CPUs requires. */
static int check_addresses(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_frame *frame, const struct silo_binding *binding) {
    const struct silo_function *function = &binding->loaded->function;
    if (function->device != NULL || function->handle == NULL) /* code of a GPU or a library */
        return 0;
    for (int32_t i = 0; i < self->plan.count; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        if ((kind == SILO_VALUE_POINTER || kind == SILO_VALUE_ADDRESS) &&
            (silo_code_flags(frame->key[i]) & SILO_FLAG_OFF_ELEMENT) != 0)
            return silo_bad_argument(self->plan.kernel, self->plan.names[i],
                                     "an array at a multiple of its elements' bytes, as code for "
                                     "CPUs does: pass a copy",
                                     inputs->arguments[i]);
    }
    return 0;
}

static int check(struct silo_launcher *self, const struct silo_inputs *inputs,
                 const struct silo_frame *frame, const struct silo_binding *binding) {
    char room[64];
    const char *expected;
    int32_t index;
    if (silo_packing_check(&binding->packing, frame->key, self->plan.count, room, sizeof room,
                           &index, &expected) != 0) {
        if (expected != NULL)
            return silo_bad_argument(self->plan.kernel, self->plan.names[index], expected,
                                     inputs->arguments[index]);
        PyErr_Format(PyExc_ValueError, "%U: the binding was made for another launcher",
                     self->plan.kernel);
        return -1;
    }
    if (check_addresses(self, inputs, frame, binding) != 0)
        return -1;
    return silo_binding_check_device(self, binding, frame);
}

int silo_binding_check_plan(const struct silo_launcher *self, const struct silo_binding *binding) {
    int32_t index;
    if (silo_packing_check_declared(&binding->packing, self->plan.parameters, self->plan.count,
                                    &index) == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%U: parameter %d is not declared as a fixed binding needs it",
                 self->plan.kernel, (int)index);
    return -1;
}

/* Returns a tuple of the objects whose addresses are in the key. The guard's entry holds the tuple,
 * so that the objects stay alive. */
static PyObject *key_objects(struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_frame *frame) {
    PyObject *list = PyList_New(0);
    uint32_t word = (uint32_t)self->plan.count;
    for (int32_t i = 0; i < self->plan.count && list != NULL; i++) {
        const struct silo_parameter *parameter = &self->plan.parameters[i];
        if (parameter->kind == SILO_PARAMETER_CONSTEXPR) {
            const uint64_t pair[2] = {frame->key[i], frame->key[word]};
            PyObject *object = silo_constant_identity(pair);
            if (object != NULL && PyList_Append(list, object) != 0)
                Py_CLEAR(list);
        }
        word += parameter->kind == SILO_PARAMETER_CONSTEXPR ||
                (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT));
    }
    for (uint32_t i = 0; i < inputs->options && list != NULL; i++) {
        const uint32_t index = frame->words - 2 * (inputs->options - i);
        const uint64_t pair[2] = {frame->key[index] & ~UINT64_C(0xff), frame->key[index + 1]};
        PyObject *object = silo_constant_identity(pair);
        if (object != NULL && PyList_Append(list, object) != 0)
            Py_CLEAR(list);
    }
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

/* Raises an error if the call's stream is captured: a miss compiles, loads and may measure, and a
 * capture allows none of these. */
static int refuse_in_capture(const struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_frame *frame) {
    const struct silo_gpu *gpu = silo_gpu_of_memory(frame->device_type);
    void *stream = NULL;
    int status = 0;
    if (gpu == NULL)
        return 0;
    if (inputs->stream != NULL && inputs->stream != Py_None) {
        if (silo_stream_given(&self->plan, inputs->stream, &stream) != 0)
            return -1;
    } else if (silo_stream_current(frame->device_adapter, gpu->memory_type, frame->device_id,
                                   &stream) != 0) {
        return -1;
    }
    if (stream == NULL || gpu->stream_capturing(stream, &status) != 0 || status == 0)
        return 0;
    PyErr_Format(silo_launch_error,
                 "%U is called in a way it was not called before while its stream is captured into "
                 "a graph, and nothing can be compiled or loaded then; call it once, or "
                 "%U.warmup(...) with such arguments, before the capture",
                 self->plan.kernel, self->plan.kernel);
    return -1;
}

PyObject *silo_miss_keep(struct silo_launcher *self, const struct silo_inputs *inputs,
                         const struct silo_frame *frame, PyObject *answer, uint64_t hash) {
    PyObject *entry = Py_NewRef(answer);
    if (PyObject_TypeCheck(answer, silo_binding_type) &&
        check(self, inputs, frame, (struct silo_binding *)answer) != 0) {
        Py_CLEAR(entry);
        if (self->route == SILO_ROUTE_TRITON && PyErr_ExceptionMatches(silo_argument_error)) {
            PyObject *error = silo_take_exception();
            entry = error ? PyObject_Str(error) : NULL;
            Py_XDECREF(error);
        }
    }
    PyObject *tuple = entry ? key_objects(self, inputs, frame) : NULL;
    if (tuple == NULL || silo_binding_table_insert(&self->bindings, frame->key, frame->words, hash,
                                                   entry, tuple) != 0)
        Py_CLEAR(entry);
    Py_XDECREF(tuple);
    return entry;
}

struct silo_binding *silo_miss(struct silo_launcher *self, const struct silo_inputs *inputs,
                               const struct silo_grid_source *grid, struct silo_frame *frame,
                               uint64_t hash) {
    if (refuse_in_capture(self, inputs, frame) != 0)
        return NULL;
    self->misses++;
    PyObject *call = silo_call_facts(self, inputs, grid, frame);
    if (call == NULL)
        return NULL;
    frame->ran = SILO_RAN_PROGRAM;
    if (silo_stack_check() != 0)
        return NULL;
    /* The member may be replaced or cleared while the call runs. */
    PyObject *on_miss = self->on_miss;
    Py_INCREF(on_miss);
    PyObject *answer = PyObject_Call(on_miss, call, NULL);
    Py_DECREF(on_miss);
    Py_DECREF(call);
    if (answer == NULL)
        return NULL;
    if (!PyObject_TypeCheck(answer, silo_binding_type)) {
        PyErr_Format(PyExc_TypeError, "%U: on_miss gives a Binding, not a %R", self->plan.kernel,
                     Py_TYPE(answer));
        Py_DECREF(answer);
        return NULL;
    }
    struct silo_binding *binding =
        (struct silo_binding *)silo_miss_keep(self, inputs, frame, answer, hash);
    Py_DECREF(answer);
    return binding;
}
