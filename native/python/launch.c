/* One call, from the arguments to the driver: the function `core`, compiled once for each launch
 * function below. */
#include "launch.h"

#include "allocator.h"
#include "binding.h"
#include "constants.h"
#include "errors.h"
#include "expression.h"
#include "flat.h"
#include "flight.h"
#include "flight_file.h"
#include "frame.h"
#include "hooks.h"
#include "library.h"
#include "map_cache.h"
#include "miss.h"
#include "placement.h"
#include "reading.h"
#include "recorder.h"
#include "stack.h"
#include "stream.h"
#include "triton_fallback.h"
#include "watch.h"

#include <math.h>

/* Returns whether the call leaves out a parameter, so that the config gives its value. */
static bool leaves_open(const struct silo_plan *plan, const struct silo_inputs *inputs) {
    for (int32_t i = 0; i < plan->count; i++)
        if (inputs->arguments[i] == NULL && (plan->parameters[i].flags & SILO_PARAMETER_OPTIONAL))
            return true;
    return false;
}

/* Returns whether the call gives a grid that is not a function. */
static bool is_plain_grid(const struct silo_inputs *inputs, const struct silo_grid_source *grid) {
    if (inputs->grid != NULL && inputs->grid != Py_None)
        return !PyCallable_Check(inputs->grid);
    return grid != NULL && grid->callable == NULL;
}

/* Reads all arguments. Afterwards the key is complete except for the device and the options. */
SILO_INLINE int read_arguments(struct silo_launcher *self, const struct silo_inputs *inputs,
                               const struct silo_grid_source *grid, struct silo_frame *frame,
                               const bool guarded, const bool is_held) {
    const struct silo_plan *plan = &self->plan;
    uint32_t words = (uint32_t)plan->count;
    int open = -1; /* the result of leaves_open; -1 until it is called */
    for (int32_t i = 0; i < plan->count; i++) {
        const struct silo_parameter *parameter = &plan->parameters[i];
        PyObject *object = inputs->arguments[i];
        int result = 0;
        uint64_t constant[2] = {0, 0};
        struct silo_held position = {0, 0};
        if (is_held)
            position = (struct silo_held){frame->holds.buffers, frame->holds.objects};
        if (SILO_UNLIKELY(object == NULL)) {
            frame->slots[i] = 0;
            frame->key[i] = SILO_CODE(SILO_VALUE_ABSENT, 0, 0, 0);
            if (SILO_UNLIKELY(parameter->flags & SILO_PARAMETER_COUNTED) &&
                is_plain_grid(inputs, grid))
                frame->key[i] |= SILO_FLAG_PLAIN_GRID;
        } else {
            /* The usual kinds of argument are read here, the likeliest first. A jump table would be
             * mispredicted after every driver call, and would place unused code between the used
             * pieces. */
            const unsigned kind = parameter->kind;
            PyTypeObject *type = Py_TYPE(object);
            if (SILO_LIKELY(type == silo_torch.tensor && kind <= SILO_PARAMETER_POINTER) &&
                SILO_LIKELY(!(parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)))) {
                if (SILO_UNLIKELY(!silo_read_tensor(plan, i, object, frame)))
                    result = silo_read_other(plan, i, object, frame);
            } else if (SILO_LIKELY(type == &PyLong_Type &&
                                   (kind == SILO_PARAMETER_ANY || kind == SILO_PARAMETER_INT))) {
                result = silo_read_integer(plan, i, object, frame);
            } else if (kind == SILO_PARAMETER_CONSTEXPR) {
                if (SILO_UNLIKELY(!silo_read_small_constant(object, constant)))
                    result = silo_read_constant(plan, plan->names[i], object, self->constants,
                                                &frame->holds, constant);
                frame->slots[i] = constant[1];
                frame->key[i] = constant[0];
            } else {
                result = silo_read_other(plan, i, object, frame);
            }
        }
        if (SILO_UNLIKELY(result != 0)) {
            frame->words = (uint32_t)i; /* an error message names the argument by this number */
            return -1;
        }
        if (is_held && self->extents.parameters != NULL &&
            self->extents.parameters[i] != SILO_EXTENT_FREE &&
            SILO_UNLIKELY(!silo_extents_of_tensor(&self->extents, i, object, frame)) &&
            silo_extents_read(plan, &self->extents, i, object, position, frame) != 0)
            return -1;
        if (guarded) {
            if (parameter->kind == SILO_PARAMETER_CONSTEXPR) {
                frame->key[words++] = constant[1];
            } else if (SILO_UNLIKELY(parameter->flags &
                                     (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT))) {
                if ((parameter->flags & SILO_PARAMETER_OPEN_KEY) && open < 0)
                    open = leaves_open(plan, inputs);
                uint64_t word = 0;
                if (!(parameter->flags & SILO_PARAMETER_OPEN_KEY) || open != 0)
                    word = silo_key_word(parameter, frame->key[i], frame->slots[i]);
                frame->key[words++] = word;
            }
        }
    }
    if (is_held) {
        for (uint32_t i = 0; i < frame->extent_words; i++)
            frame->key[words++] = frame->extents[i];
    }
    frame->words = words;
    return 0;
}

/* Adds two words to the key for each option that the call gives. The words name the option, so two
 * keys of the same length are equal only for the same options. */
static int read_options(struct silo_launcher *self, const struct silo_inputs *inputs,
                        struct silo_frame *frame) {
    for (uint32_t i = 0; i < inputs->options; i++) {
        uint64_t word[2];
        PyObject *value = inputs->option_value[i];
        if (SILO_UNLIKELY(!silo_read_small_constant(value, word)) &&
            silo_read_constant(&self->plan, self->plan.options[inputs->option[i]], value,
                               self->constants, &frame->holds, word) != 0)
            return -1;
        frame->key[frame->words++] = word[0] | inputs->option[i];
        frame->key[frame->words++] = word[1];
    }
    return 0;
}

/* Gets the stream of a call on a GPU; -1 with an exception set. */
SILO_INLINE int read_stream(const struct silo_plan *plan, const struct silo_inputs *inputs,
                            const struct silo_frame *frame, const struct silo_function *function,
                            void **stream) {
    if (SILO_UNLIKELY(inputs->stream != NULL && inputs->stream != Py_None))
        return silo_stream_given(plan, inputs->stream, stream);
    return silo_stream_current(frame->device_adapter, function->memory_type, function->device_index,
                               stream);
}

/* Returns whether a launch of a Triton program must call Triton's hooks. `inputs->triton` is set
 * only for launchers with SILO_ROUTE_TRITON. */
SILO_INLINE bool has_triton_hooks(const struct silo_launcher *self,
                                  const struct silo_inputs *inputs) {
    return self->route == SILO_ROUTE_TRITON && inputs->triton->settings->enter != NULL;
}

static int call_grid(struct silo_launcher *self, const struct silo_inputs *inputs,
                     struct silo_frame *frame, const struct silo_binding *binding,
                     PyObject *callable, int64_t dims[3]) {
    frame->ran = SILO_RAN_PROGRAM;
    if (silo_stack_check() != 0)
        return -1;
    PyObject *meta = silo_call_mapping(self, inputs, binding);
    if (meta == NULL)
        return -1;
    PyObject *grid = silo_call_one(callable, meta);
    Py_DECREF(meta);
    int result = grid ? silo_grid_parse(self->plan.kernel, grid, dims) : -1;
    if (result == 0)
        silo_recorder_grid(grid);
    if (result == 0 && has_triton_hooks(self, inputs))
        inputs->triton->dims = Py_NewRef(grid);
    Py_XDECREF(grid);
    return result;
}

/* Records that code of an argument's class may run when a grid is read, because the extents in the
 * grid may be objects of any class. */
static void ask_extents(struct silo_frame *frame, PyObject *grid) {
    if (PyList_Check(grid)) /* another thread may change the list meanwhile */
        frame->ran = frame->ran == SILO_RAN_NOTHING ? SILO_RAN_ARGUMENT : frame->ran;
    else if (!PyTuple_Check(grid))
        silo_ask(frame, grid);
    else
        for (Py_ssize_t i = PyTuple_Size(grid); i-- > 0;)
            silo_ask(frame, PyTuple_GetItem(grid, i));
}

static int find_grid(struct silo_launcher *self, const struct silo_inputs *inputs,
                     const struct silo_grid_source *grid, struct silo_frame *frame,
                     const struct silo_binding *binding, int64_t dims[3]) {
    if (inputs->grid != NULL && inputs->grid != Py_None) {
        if (PyCallable_Check(inputs->grid))
            return call_grid(self, inputs, frame, binding, inputs->grid, dims);
        ask_extents(frame, inputs->grid);
        return silo_grid_parse(self->plan.kernel, inputs->grid, dims);
    }
    if (grid == NULL && self->fixed != NULL && self->grid_object != NULL)
        grid = &self->grid; /* a grid given with the example arguments takes precedence over the
                               declared grid */
    if (grid == NULL && binding->grid.axes != 0)
        return silo_grid_declared(&binding->grid, &self->plan, frame->slots, frame->key,
                                  inputs->arguments, dims);
    if (grid == NULL && self->grid_object != NULL)
        grid = &self->grid;
    if (grid == NULL) {
        PyErr_Format(silo_argument_error,
                     "%U has no declared grid: call it as %U[grid](...), or declare "
                     "silo.kernel(grid=...), which cases need",
                     self->plan.kernel, self->plan.kernel);
        return -1;
    }
    if (grid->callable != NULL)
        return call_grid(self, inputs, frame, binding, grid->callable, dims);
    memcpy(dims, grid->dims, sizeof grid->dims);
    return 0;
}

static int raise_launch_error(const struct silo_launcher *self, const struct silo_binding *binding,
                              const struct silo_launch *launch, int code) {
    const struct silo_driver *driver = binding->loaded->driver;
    const char *report =
        binding->loaded->function.device == NULL
            ? NULL
            : silo_flight_driver_error(code, driver->error_text(code),
                                       PyUnicode_AsUTF8AndSize(self->plan.kernel, NULL));
    if (PyErr_Occurred()) { /* a signal handler of the program raised an exception; that exception
                               is raised, with a note about the launch */
        silo_add_note("%U: %s", self->plan.kernel, driver->error_text(code));
        return -1;
    }
    /* Programs that launch through Triton expect a RuntimeError. */
    PyErr_Format(self->route == SILO_ROUTE_TRITON ? PyExc_RuntimeError : silo_launch_error,
                 "%U: %s (code %d) from '%U' on %s; grid=(%u, %u, %u), config %R",
                 self->plan.kernel, driver->error_text(code), code, binding->loaded->entry,
                 driver->name, (unsigned)launch->grid[0], (unsigned)launch->grid[1],
                 (unsigned)launch->grid[2], binding->config);
    if (report != NULL)
        silo_add_note("the last launches are in %s: silo crash %s", report, report);
    return -1;
}

/* The data from which a tensor map is made while the parameters of a launch are packed. */
struct map_call {
    const struct silo_plan *plan;
    struct silo_binding *binding;
    PyObject *const *arguments;
    struct silo_frame *frame;
};

static void *kept_map(void *context, int32_t slot, const struct silo_map_form *form) {
    const struct map_call *call = context;
    return form->of_array
               ? silo_array_map(call->plan, call->binding, slot, form, call->arguments, call->frame)
               : silo_descriptor_map(call->plan, slot, form, call->frame);
}

/* Raises the error for parameter `number` of the binary, which could not be packed: the exception
 * of its tensor map, if one is set, else an error about a descriptor of another rank. */
static SILO_NOINLINE int raise_not_packed(const struct silo_plan *plan,
                                          const struct silo_packing *packing,
                                          struct silo_frame *frame, int32_t number) {
    const struct silo_values values = {frame->slots, frame->scratch, frame->descriptors,
                                       frame->layouts};
    silo_error error;
    if (PyErr_Occurred())
        return -1;
    const char *kernel = PyUnicode_AsUTF8AndSize(plan->kernel, NULL),
               *name = PyUnicode_AsUTF8AndSize(plan->names[packing->packed[number].slot], NULL);
    if (kernel == NULL || name == NULL)
        return -1;
    silo_pack_refuse(packing, &values, number, kernel, name, &error);
    return silo_raise(&error);
}

/* Packs the values of the binary's parameters on the stack and launches it by one driver call.
 * Returns 0; 1 if `frame->result` is the launch's value; -1 with an exception set. */
SILO_INLINE int run(struct silo_launcher *self, const struct silo_inputs *inputs,
                    struct silo_binding *binding, struct silo_frame *frame, const int64_t dims[3],
                    void *stream) {
    if (SILO_UNLIKELY(binding->loaded->function.handle == NULL))
        return silo_library_run(self, inputs, binding, dims, &frame->result);
    void *params[binding->packing.room];
    const struct silo_values values = {frame->slots, frame->scratch, frame->descriptors,
                                       frame->layouts};
    struct map_call call = {&self->plan, binding, inputs->arguments, frame};
    const int32_t packed = silo_pack(&binding->packing, &values, params, kept_map, &call);
    if (SILO_UNLIKELY(packed != SILO_ALL_PACKED))
        return raise_not_packed(&self->plan, &binding->packing, frame, packed);
    struct silo_loaded *loaded = binding->loaded;
    const struct silo_launch launch = {
        .function = &loaded->function,
        .grid = {(uint32_t)dims[0], (uint32_t)dims[1], (uint32_t)dims[2]},
        .params = params,
        .stream = stream,
        .holds_lock = !self->release_gil,
    };
    int code;
    if (self->release_gil) {
        PyThreadState *state = PyEval_SaveThread();
        code = loaded->driver->launch(&launch);
        PyEval_RestoreThread(state);
    } else {
        code = loaded->driver->launch(&launch);
    }
    return SILO_LIKELY(code == 0) ? 0 : raise_launch_error(self, binding, &launch, code);
}

/* Checks that the arrays are unchanged after Python code ran during the call; -1 with an exception
 * set. */
static SILO_NOINLINE int read_again(const struct silo_launcher *self,
                                    const struct silo_inputs *inputs,
                                    const struct silo_frame *frame) {
    if (silo_read_again(&self->plan, inputs->arguments, frame) != 0)
        return -1;
    return self->route == SILO_ROUTE_HELD && frame->ran == SILO_RAN_PROGRAM
               ? silo_extents_again(&self->plan, &self->extents, inputs->arguments, frame)
               : 0;
}

/* Launches as `run` does, and records the launch in the flight recorder. */
static SILO_NOINLINE int run_recorded(struct silo_launcher *self, const struct silo_inputs *inputs,
                                      struct silo_binding *binding, struct silo_frame *frame,
                                      const int64_t dims[3], void *stream) {
    const struct silo_flight_kind *kind = binding->flight;
    if (SILO_UNLIKELY(kind == NULL)) {
        if ((kind = silo_flight_kind_of(self, binding, frame)) == NULL)
            return -1;
        frame->ran = SILO_RAN_PROGRAM;
        if (read_again(self, inputs, frame) != 0)
            return -1;
    }
    uint64_t number;
    struct silo_flight_slot *slot =
        silo_flight_record(&self->plan, inputs, kind, frame, dims, stream, &number);
    const int result = run(self, inputs, binding, frame, dims, stream);
    silo_flight_done(slot, number, result < 0);
    return result;
}

/* Makes a launch that hooks see; Silo's hook is entered before Triton's and left after it. `empty`:
 * whether the grid is empty; then nothing is launched, but Triton's hooks are still called. */
static SILO_NOINLINE int launch_with_hooks(struct silo_launcher *self,
                                           const struct silo_inputs *inputs,
                                           const struct silo_grid_source *grid,
                                           struct silo_binding *binding, struct silo_frame *frame,
                                           const int64_t dims[3], void *stream, bool empty) {
    if (silo_recorder != NULL &&
        (silo_recorder_add(self, inputs, grid, binding, frame, dims, stream) != 0 ||
         silo_recorder_is_dry()))
        return PyErr_Occurred() ? -1 : 0;
    struct silo_triton_call *call = has_triton_hooks(self, inputs) ? inputs->triton : NULL;
    PyObject *token = NULL, *metadata = NULL;
    if ((silo_hooks_on & ~SILO_LOOKS_FLIGHT) && !empty &&
        (token = silo_hooks_enter(self, inputs, binding, dims, stream)) == NULL)
        return -1;
    frame->ran = SILO_RAN_PROGRAM;
    int result = -1;
    if (call == NULL || (metadata = silo_triton_enter(call, binding->tag, inputs->arguments,
                                                      self->plan.count, dims)) != NULL)
        result = empty                                  ? 0
                 : read_again(self, inputs, frame) != 0 ? -1
                 : silo_hooks_on & SILO_LOOKS_FLIGHT
                     ? run_recorded(self, inputs, binding, frame, dims, stream)
                     : run(self, inputs, binding, frame, dims, stream);
    if (metadata != NULL && result == 0 && silo_triton_leave(call, metadata) != 0)
        result = -1;
    Py_XDECREF(metadata);
    if (token == NULL || silo_hooks_exit(token) == 0)
        return result;
    if (result > 0)
        Py_DECREF(frame->result);
    return -1;
}

/* Finds the grid and the stream, and launches. Returns 0; 1 if `frame->result` is the value to
 * return; -1 with an exception set. */
SILO_INLINE int launch(struct silo_launcher *self, const struct silo_inputs *inputs,
                       const struct silo_grid_source *grid, struct silo_frame *frame,
                       struct silo_binding *binding, const bool triton) {
    int64_t dims[3];
    if (SILO_LIKELY(grid != NULL && grid->callable == NULL && inputs->grid == NULL))
        memcpy(dims, grid->dims, sizeof dims);
    else if (grid == NULL && inputs->grid == NULL && binding->grid.usual &&
             self->grid_object == NULL &&
             SILO_LIKELY(
                 silo_grid_usual(&binding->grid, self->plan.count, frame->slots, frame->key, dims)))
        ; /* silo_grid_usual stored the declared grid in `dims` */
    else if (SILO_UNLIKELY(find_grid(self, inputs, grid, frame, binding, dims) != 0))
        return -1;
    const struct silo_function *function = &binding->loaded->function;
    const enum silo_grid_state state = silo_grid_check(function, dims);
    if (SILO_UNLIKELY(state != SILO_GRID_FITS)) {
        if (state != SILO_GRID_EMPTY)
            return silo_grid_raise_limits(self->plan.kernel, function, dims);
        return (silo_hooks_on & ~SILO_LOOKS_FLIGHT) || (triton && has_triton_hooks(self, inputs))
                   ? launch_with_hooks(self, inputs, grid, binding, frame, dims, NULL, true)
                   : 0;
    }
    void *stream = NULL;
    if (function->device != NULL) {
        if (triton)
            stream = inputs->triton->stream;
        else if (SILO_UNLIKELY(read_stream(&self->plan, inputs, frame, function, &stream) != 0))
            return -1;
        /* If the stream is being captured, the binary is remembered as part of a graph and never
         * unloaded. The null stream cannot be captured. */
        if (SILO_UNLIKELY(stream != NULL))
            silo_binary_launched_on(binding->loaded->binary, stream);
        if (SILO_UNLIKELY(binding->packing.takes_scratch) &&
            silo_allocator_take(&self->plan, binding, dims, stream,
                                triton ? inputs->triton->settings->allocate : NULL, frame) != 0)
            return -1;
    } else if (SILO_UNLIKELY(inputs->stream != NULL && inputs->stream != Py_None)) {
        silo_ask(frame, inputs->stream);
        if (silo_stream_given(&self->plan, inputs->stream, &stream) != 0) {
            if (function->handle != NULL)
                return -1;
            PyErr_Clear(); /* a library's streams may lack handles; its code receives the stream
                              object itself */
        }
    }
    if (SILO_LIKELY(!silo_hooks_on) && SILO_LIKELY(!triton || !has_triton_hooks(self, inputs)))
        return SILO_UNLIKELY(frame->ran != SILO_RAN_NOTHING) && read_again(self, inputs, frame) != 0
                   ? -1
                   : run(self, inputs, binding, frame, dims, stream);
    if (silo_hooks_on == SILO_LOOKS_FLIGHT && (!triton || !has_triton_hooks(self, inputs)))
        return SILO_UNLIKELY(frame->ran != SILO_RAN_NOTHING) && read_again(self, inputs, frame) != 0
                   ? -1
                   : run_recorded(self, inputs, binding, frame, dims, stream);
    return launch_with_hooks(self, inputs, grid, binding, frame, dims, stream, false);
}

/* Returns the binding for the call (a new reference), or NULL with an exception set. */
SILO_INLINE struct silo_binding *find_binding(struct silo_launcher *self,
                                              const struct silo_inputs *inputs,
                                              const struct silo_grid_source *grid,
                                              struct silo_frame *frame, const bool guarded) {
    if (!guarded) {
        if (SILO_UNLIKELY(inputs->options != 0)) {
            PyErr_Format(silo_argument_error,
                         "%U: this launcher has one fixed config and takes no '%U'",
                         self->plan.kernel, self->plan.options[inputs->option[0]]);
            return NULL;
        }
        const struct silo_function *function = &self->fixed->loaded->function;
        if (SILO_UNLIKELY(frame->device_type != function->memory_type ||
                          frame->device_id != function->device_index) &&
            silo_binding_check_device(self, self->fixed, frame) != 0)
            return NULL;
        Py_INCREF((PyObject *)self->fixed);
        return self->fixed;
    }
    frame->device_word = frame->words++;
    frame->key[frame->device_word] =
        silo_device_word(silo_generation, frame->device_type, frame->device_id);
    if (SILO_UNLIKELY(inputs->options != 0) && read_options(self, inputs, frame) != 0)
        return NULL;
    uint64_t hash = 0;
    PyObject *entry = silo_binding_table_find(&self->bindings, frame->key, frame->words, &hash);
    if (SILO_LIKELY(entry != NULL))
        return (struct silo_binding *)entry;
    struct silo_recorder *recorder = silo_recorder;
    if (SILO_UNLIKELY(silo_recorder_is_dry()) && recorder->bindings != NULL)
        return silo_recorder_binding(self);
    silo_recorder = NULL; /* launches that compiling or tuning makes are not the program's, so they
                             are not recorded */
    struct silo_binding *created = silo_miss(self, inputs, grid, frame, hash);
    silo_recorder = recorder;
    return created;
}

/* Records a launch that Triton itself made, because the launcher had no binding for the call yet.
 * The record has the binding that will serve later calls. Returns -1 with an exception set. */
static SILO_NOINLINE int record_served(struct silo_launcher *self, const struct silo_inputs *inputs,
                                       const struct silo_grid_source *grid,
                                       struct silo_frame *frame, PyObject *entry) {
    int64_t dims[3];
    if (entry == NULL || Py_TYPE(entry) != silo_binding_type) {
        silo_recorder_refuse(self->plan.kernel, NULL);
        return 0;
    }
    struct silo_binding *binding = (struct silo_binding *)entry;
    return find_grid(self, inputs, grid, frame, binding, dims) != 0
               ? -1
               : silo_recorder_add(self, inputs, grid, binding, frame, dims,
                                   inputs->triton->stream);
}

/* Adds to the flight recorder a launch on a GPU that Triton itself made, because the launcher had
 * no binding for the call yet. A launch on the CPU is skipped: it went through a launcher of Silo,
 * which recorded it. Returns -1 with an exception set. */
static SILO_NOINLINE int fly_served(struct silo_launcher *self, const struct silo_inputs *inputs,
                                    const struct silo_grid_source *grid, struct silo_frame *frame,
                                    PyObject *entry) {
    int64_t dims[3];
    if (Py_TYPE(entry) != silo_binding_type)
        return 0;
    struct silo_binding *binding = (struct silo_binding *)entry;
    const struct silo_flight_kind *kind = binding->flight;
    if (binding->loaded->function.device == NULL)
        return 0;
    if (find_grid(self, inputs, grid, frame, binding, dims) !=
        0) /* this may call the program's grid function a second time */
        return -1;
    if (kind == NULL && (kind = silo_flight_kind_of(self, binding, frame)) == NULL)
        return -1;
    uint64_t number;
    struct silo_flight_slot *slot =
        silo_flight_record(&self->plan, inputs, kind, frame, dims, inputs->triton->stream, &number);
    silo_flight_done(slot, number, false);
    return 0;
}

/* Makes the launch of a Triton program's call, whose arguments have been read. Returns the value
 * for the program, or NULL with an exception set. */
SILO_INLINE PyObject *core_triton(struct silo_launcher *self, const struct silo_inputs *inputs,
                                  const struct silo_grid_source *grid, struct silo_frame *frame) {
    struct silo_triton_call *call = inputs->triton;
    frame->device_word = frame->words++;
    frame->key[frame->device_word] =
        silo_device_word(silo_generation, (int32_t)call->settings->epoch, call->device);
    if (SILO_UNLIKELY(inputs->options != 0) && read_options(self, inputs, frame) != 0)
        return NULL;
    uint64_t hash = 0;
    PyObject *result = NULL,
             *entry = silo_binding_table_find(&self->bindings, frame->key, frame->words, &hash);
    if (SILO_UNLIKELY(entry == NULL && silo_recorder_is_dry()) &&
        (entry = (PyObject *)silo_recorder_binding(self)) == NULL) {
        call->may_have_run = true;
        return NULL;
    }
    if (SILO_UNLIKELY(entry == NULL)) {
        struct silo_recorder *recorder = silo_recorder;
        silo_recorder = NULL; /* not recorded, as in find_binding */
        entry = silo_triton_miss(self, inputs, grid, frame, hash, &result);
        silo_recorder = recorder;
        if (SILO_UNLIKELY(recorder != NULL) && result != NULL &&
            record_served(self, inputs, grid, frame, entry) != 0)
            Py_CLEAR(result);
        if (SILO_UNLIKELY(silo_hooks_on & SILO_LOOKS_FLIGHT) && result != NULL && entry != NULL &&
            fly_served(self, inputs, grid, frame, entry) != 0)
            Py_CLEAR(result);
        if (entry == NULL || result != NULL) {
            Py_XDECREF(entry);
            return result;
        }
    }
    if (SILO_UNLIKELY(Py_TYPE(entry) != silo_binding_type)) {
        result = silo_triton_fall_back_refused(call, entry);
        Py_DECREF(entry);
        return result;
    }
    struct silo_binding *binding = (struct silo_binding *)entry;
    if (SILO_LIKELY(launch(self, inputs, grid, frame, binding, true) == 0)) {
        call->kernel->launches++;
        result = binding->tag;
        Py_INCREF(result);
    }
    Py_DECREF(entry);
    return result;
}

SILO_INLINE PyObject *core(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid, const bool guarded,
                           const bool is_held, const enum silo_mode mode, const bool triton) {
    struct silo_frame frame;
    /* All arrays lie in one piece of stack; those that every call fills come first. */
    const size_t count = (size_t)self->plan.count;
    const size_t slots = silo_slot_words(&self->plan), extents = is_held ? self->extents.room : 0,
                 layouts = is_held ? count + self->extents.passed : 0,
                 keys = silo_key_words(&self->plan, inputs->options) + extents,
                 objects = silo_hold_objects(count, inputs->options);
    uint64_t *words = __builtin_alloca(
        (slots + keys + objects + extents + layouts) * sizeof *words + count * sizeof(Py_buffer) +
        silo_descriptor_room(&self->plan) *
            (sizeof(struct silo_descriptor) + sizeof(struct silo_descriptor_owner)));
    words[0] = 0;
    frame.slots = words + 1;
    frame.key = words + slots;
    frame.holds.object = (PyObject **)(frame.key + keys);
    frame.holds.buffer = (Py_buffer *)(frame.holds.object + objects);
    frame.descriptors = (struct silo_descriptor *)(frame.holds.buffer + count);
    frame.device_type = SILO_DEVICE_UNKNOWN;
    frame.device_id = 0;
    frame.device_from = SILO_NO_PARAMETER;
    frame.device_adapter = NULL;
    frame.ran = SILO_RAN_NOTHING;
    frame.placed = false;
    if (triton) {
        frame.placed = true;
        frame.device_type = inputs->triton->settings->memory_type;
        frame.device_id = inputs->triton->device;
    }
    frame.holds.buffers = frame.holds.objects = 0;
    frame.descriptors_used = 0;
    frame.layouts = NULL;
    if (is_held) {
        frame.extents =
            (uint64_t *)silo_owner_of(&self->plan, &frame, silo_descriptor_room(&self->plan));
        frame.extent_words = 0;
        frame.layouts = (const uint64_t **)(frame.extents + extents);
        frame.passed = frame.extents + extents + count;
        for (size_t i = 0; i < count; i++)
            frame.layouts[i] = NULL;
        if (self->extents.grid)
            silo_extents_read_grid(grid ? grid->dims : NULL, &frame);
    }
    PyObject *result = NULL;
    const bool read = read_arguments(self, inputs, grid, &frame, guarded, is_held) == 0;
    if (SILO_LIKELY(read)) {
        if (guarded && SILO_UNLIKELY(frame.device_type == SILO_DEVICE_UNKNOWN))
            silo_place_call(&self->plan, &frame);
        if (triton) {
            result = core_triton(self, inputs, grid, &frame);
        } else if (mode == SILO_MODE_INSPECT) {
            result = silo_call_facts(self, inputs, grid, &frame);
        } else {
            struct silo_binding *binding = find_binding(self, inputs, grid, &frame, guarded);
            if (mode == SILO_MODE_RESOLVE) {
                result = (PyObject *)binding;
            } else if (SILO_LIKELY(binding != NULL)) {
                const int outcome = launch(self, inputs, grid, &frame, binding, false);
                if (SILO_LIKELY(outcome == 0)) {
                    result = Py_None;
                    Py_INCREF(result);
                } else if (outcome > 0) {
                    result = frame.result;
                }
                Py_DECREF((PyObject *)binding);
            }
        }
    } else if (mode == SILO_MODE_LAUNCH && guarded) {
        result = silo_unread(self, inputs, grid);
    }
    if (SILO_UNLIKELY(frame.holds.buffers | frame.holds.objects))
        silo_holds_release(&frame.holds);
    /* An argument or the grid was refused before anything was launched, so Triton makes the call.
     */
    if (triton && SILO_UNLIKELY(result == NULL) && !inputs->triton->may_have_run &&
        PyErr_ExceptionMatches(silo_argument_error))
        return silo_triton_fall_back_unread(&self->plan, inputs, read ? -1 : (int32_t)frame.words);
    return result;
}

SILO_HOT PyObject *silo_launch_triton(struct silo_launcher *self, const struct silo_inputs *inputs,
                                      const struct silo_grid_source *grid) {
    return core(self, inputs, grid, true, false, SILO_MODE_LAUNCH, true);
}

SILO_HOT PyObject *silo_launch_guarded(struct silo_launcher *self, const struct silo_inputs *inputs,
                                       const struct silo_grid_source *grid) {
    return core(self, inputs, grid, true, false, SILO_MODE_LAUNCH, false);
}

/* Calls on_change if a watched value (a global, closure cell or attribute that the kernel's code
 * was compiled with) has changed; -1 with an exception set. */
static int settle_watched(struct silo_launcher *self) {
    SILO_LOCK(&self->lock);
    PyObject *watched = Py_XNewRef(self->watched);
    SILO_UNLOCK(&self->lock);
    if (watched == NULL)
        return 0;
    const bool same = SILO_LIKELY(silo_watch_holds(watched));
    Py_DECREF(watched);
    if (same)
        return 0;
    PyErr_Clear(); /* a container that cannot be compared counts as changed */
    if (silo_stack_check() != 0)
        return -1;
    PyObject *on_change = Py_XNewRef(self->on_change);
    PyObject *result = on_change != NULL ? PyObject_CallNoArgs(on_change) : Py_NewRef(Py_None);
    Py_XDECREF(on_change);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

SILO_HOT PyObject *silo_launch_watched(struct silo_launcher *self, const struct silo_inputs *inputs,
                                       const struct silo_grid_source *grid) {
    return settle_watched(self) == 0 ? silo_launch_guarded(self, inputs, grid) : NULL;
}

SILO_HOT PyObject *silo_launch_fixed(struct silo_launcher *self, const struct silo_inputs *inputs,
                                     const struct silo_grid_source *grid) {
    return core(self, inputs, grid, false, false, SILO_MODE_LAUNCH, false);
}

/* Reads the grid that a call gives, and replaces it by its numbers. The grid is read only once,
 * because the code is compiled for these numbers and a second reading of a list could return
 * others. `checked_inputs` and `plain` are memory for the values that replace `*inputs` and
 * `*grid`. Returns -1 with an ArgumentError set, also for a grid that is a function. */
static int settle_grid(const struct silo_launcher *self, const struct silo_inputs **inputs,
                       const struct silo_grid_source **grid, struct silo_inputs *checked_inputs,
                       struct silo_grid_source *plain) {
    PyObject *grid_object = (*inputs)->grid, *callable = NULL;
    if (grid_object != NULL && grid_object != Py_None) {
        plain->callable = NULL;
        if (PyCallable_Check(grid_object))
            callable = grid_object;
        else if (silo_grid_parse(self->plan.kernel, grid_object, plain->dims) != 0)
            return -1;
        *checked_inputs = **inputs;
        checked_inputs->grid = NULL;
        *inputs = checked_inputs;
        *grid = plain;
    } else if (*grid != NULL) {
        callable = (*grid)->callable;
    }
    if (callable == NULL)
        return 0;
    PyErr_Format(silo_argument_error,
                 "%U: its code is made for one grid, so a call gives it as integers, not as the "
                 "function %R; or declare it with grid=",
                 self->plan.kernel, callable);
    return -1;
}

static PyObject *held_core(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid, const enum silo_mode mode) {
    struct silo_inputs checked_inputs;
    struct silo_grid_source plain;
    if (self->watched != NULL && settle_watched(self) != 0)
        return NULL;
    if (self->extents.grid && settle_grid(self, &inputs, &grid, &checked_inputs, &plain) != 0)
        return NULL;
    if (self->fixed != NULL && mode != SILO_MODE_INSPECT)
        return core(self, inputs, grid, false, true, mode, false);
    return core(self, inputs, grid, true, true, mode, false);
}

SILO_HOT PyObject *silo_launch_held(struct silo_launcher *self, const struct silo_inputs *inputs,
                                    const struct silo_grid_source *grid) {
    if (SILO_LIKELY(!self->extents.grid && self->fixed == NULL && self->watched == NULL))
        return core(self, inputs, grid, true, true, SILO_MODE_LAUNCH, false);
    return held_core(self, inputs, grid, SILO_MODE_LAUNCH);
}

PyObject *silo_launch_examine(struct silo_launcher *self, const struct silo_inputs *inputs,
                              enum silo_mode mode) {
    if (self->route == SILO_ROUTE_HELD)
        return held_core(self, inputs, NULL, mode);
    if (self->route == SILO_ROUTE_WATCHED && settle_watched(self) != 0)
        return NULL;
    if (mode == SILO_MODE_RESOLVE)
        return core(self, inputs, NULL, self->route != SILO_ROUTE_FIXED, false, SILO_MODE_RESOLVE,
                    false);
    return core(self, inputs, NULL, true, false, SILO_MODE_INSPECT, false);
}
