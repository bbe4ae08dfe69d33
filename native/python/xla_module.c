#include "xla_module.h"

#include "argument_word.h"
#include "binding.h"
#include "errors.h"
#include "grid.h"
#include "xla_call.h"

#include <stdio.h>
#include <stdlib.h>

static PyObject *resolver; /* owned; NULL until xla_connect sets it */

/* Number of a call's words that belong to no parameter: one zero word before the parameters' words;
 * after them two words for scratch memory, and one for arrays that no parameter takes. */
#define OTHER_WORDS 4

/* ---- making a call ---- */

static void free_call(struct silo_xla_call *call) {
    if (call == NULL)
        return;
    for (int32_t i = 0; i < call->operands + call->results; i++)
        free((void *)(uintptr_t)call->buffers[i].name);
    free(call->kernel);
    Py_XDECREF((PyObject *)call->binding);
    free(call);
}

/* Returns a copy of a text, which the caller frees; NULL with an exception set. */
static char *copied_text(PyObject *text) {
    const char *utf8 = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    char *copy = utf8 ? strdup(utf8) : NULL;
    if (copy == NULL && !PyErr_Occurred())
        utf8 ? (void)PyErr_NoMemory() : PyErr_SetString(PyExc_TypeError, "a name is a str");
    return copy;
}

/* Reads a parameter, a tuple (kind, code, bits, value): the kind of the argument (enum
 * silo_value_kind), and a scalar's value. Stores the value in `*slot` and the key word in `*word`.
 */
static int read_parameter(PyObject *item, uint64_t *slot, uint64_t *word) {
    int kind, code, bits;
    PyObject *value;
    if (!PyArg_ParseTuple(item, "iiiO", &kind, &code, &bits, &value))
        return -1;
    *slot = 0;
    *word = SILO_CODE(kind & 0xff, code & 0xff, bits & 0xff, 0);
    if (kind == SILO_VALUE_INT) {
        *slot = (uint64_t)PyLong_AsUnsignedLongLongMask(value);
    } else if (kind == SILO_VALUE_BOOL) {
        *slot = PyObject_IsTrue(value) == 1;
    } else if (kind == SILO_VALUE_FLOAT) {
        const double number = PyFloat_AsDouble(value);
        memcpy(slot, &number, sizeof *slot);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Reads an array, a tuple (name, parameter or -1, XLA's dtype, bytes of an element, shape, aligned,
 * alias or -1). */
static int read_buffer(PyObject *item, const struct silo_xla_call *call,
                       struct silo_xla_buffer *buffer) {
    int slot, dtype, element, aligned, alias;
    PyObject *name, *shape;
    if (!PyArg_ParseTuple(item, "UiiiO!pi", &name, &slot, &dtype, &element, &PyTuple_Type, &shape,
                          &aligned, &alias))
        return -1;
    if (slot < -1 || slot >= call->word_count - OTHER_WORDS || alias < -1 ||
        alias >= call->operands) {
        PyErr_SetString(PyExc_ValueError, "an array of no parameter, or that is no operand's");
        return -1;
    }
    buffer->word = (uint16_t)(slot < 0 ? call->word_count - 1 : slot + 1);
    buffer->dtype = dtype;
    buffer->aligned = aligned != 0;
    buffer->alias = (int16_t)alias;
    buffer->bytes = (uint64_t)element;
    for (int32_t i = 0; i < buffer->rank; i++) {
        buffer->dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred())
            return -1;
        if (buffer->dims[i] < 0 ||
            __builtin_mul_overflow(buffer->bytes, (uint64_t)buffer->dims[i], &buffer->bytes)) {
            PyErr_SetString(PyExc_ValueError, "the shape of an array that no memory holds");
            return -1;
        }
    }
    buffer->name = copied_text(name);
    return buffer->name != NULL ? 0 : -1;
}

static PyObject *array_item(PyObject *operands, PyObject *results, Py_ssize_t index) {
    const Py_ssize_t count = PyTuple_Size(operands);
    return index < count ? PyTuple_GetItem(operands, index)
                         : PyTuple_GetItem(results, index - count);
}

/* Returns the number of an array's axes; -1 with an exception set. */
static Py_ssize_t rank_of(PyObject *item) {
    PyObject *shape = PyTuple_Check(item) ? PyTuple_GetItem(item, 4) : NULL;
    if (shape != NULL && PyTuple_Check(shape))
        return PyTuple_Size(shape);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "an array is a tuple, the fifth of which is its shape");
    return -1;
}

/* Returns a new zeroed call, with pointers to its arrays in the memory after it; NULL with an
 * exception set. */
static struct silo_xla_call *new_call(const struct silo_packing *packing, PyObject *parameters,
                                      PyObject *operands, PyObject *results) {
    const Py_ssize_t count = PyTuple_Size(parameters), arrays = PyTuple_Size(operands),
                     result_count = PyTuple_Size(results), total = arrays + result_count;
    if (count > SILO_MAX_PARAMETERS || arrays > SILO_MAX_PARAMETERS ||
        result_count > SILO_MAX_PARAMETERS || result_count == 0) {
        PyErr_SetString(PyExc_ValueError, "too many parameters or arrays, or no result");
        return NULL;
    }
    size_t extents = 0;
    for (Py_ssize_t i = 0; i < total; i++) {
        const Py_ssize_t rank = rank_of(array_item(operands, results, i));
        if (rank < 0)
            return NULL;
        extents += (size_t)rank;
    }
    struct silo_xla_call *call;
    const size_t words = (size_t)count + OTHER_WORDS;
    const size_t bytes = sizeof *call + words * sizeof *call->words +
                         (size_t)total * sizeof *call->buffers + extents * sizeof(int64_t) +
                         packing->count * sizeof *call->places;
    void *memory;
    if (bytes > UINT32_MAX || posix_memalign(&memory, 64, bytes) != 0) {
        PyErr_NoMemory();
        return NULL;
    }
    call = memset(memory, 0, bytes);
    call->bytes = (uint32_t)bytes;
    call->operands = (int32_t)arrays;
    call->results = (int32_t)result_count;
    call->word_count = (uint16_t)words;
    call->scratch_at = (uint16_t)(count + 1);
    call->parameter_count = (uint16_t)packing->count;
    call->words = (uint64_t *)(call + 1);
    call->buffers = (struct silo_xla_buffer *)(call->words + words);
    int64_t *dims = (int64_t *)(call->buffers + total);
    for (Py_ssize_t i = 0; i < total; i++) {
        call->buffers[i].dims = dims;
        call->buffers[i].rank = (int32_t)rank_of(array_item(operands, results, i));
        dims += call->buffers[i].rank;
    }
    call->places = (uint16_t *)dims;
    return call;
}

static int read_buffers(struct silo_xla_call *call, PyObject *operands, PyObject *results) {
    for (int32_t i = 0; i < call->operands + call->results; i++)
        if (read_buffer(array_item(operands, results, i), call, &call->buffers[i]) != 0)
            return -1;
    return 0;
}

/* Checks that the code takes arguments of the kinds in `codes`, and that the arguments can be
 * packed without Python objects; -1 with an exception set. */
static int check_packing(const struct silo_xla_call *call, const uint64_t *codes) {
    const struct silo_packing *packing = &call->binding->packing;
    char buffer[64];
    const char *expected;
    int32_t index = -1;
    for (uint32_t i = 0; i < packing->count; i++) {
        const uint8_t pack = packing->packed[i].pack;
        if (pack == SILO_PACK_DESCRIPTOR || pack == SILO_PACK_STRUCT ||
            pack == SILO_PACK_ARRAY_MAP || packing->gathers) {
            PyErr_Format(silo_argument_error,
                         "%s takes tensor descriptors or layouts of arrays, which XLA's programs "
                         "do not pass: call the kernel itself",
                         call->kernel);
            return -1;
        }
    }
    if (silo_packing_check(packing, codes, call->word_count - OTHER_WORDS, buffer, sizeof buffer,
                           &index, &expected) == 0)
        return 0;
    PyErr_Format(silo_argument_error, "%s: its code needs %s as parameter number %d", call->kernel,
                 expected != NULL ? expected : "another parameter", (int)index + 1);
    return -1;
}

/* Never called for a valid binding: maps need an object of the caller, so check_packing refuses
 * code that takes maps. */
static void *no_map(void *context, int32_t slot, const struct silo_map_form *form) {
    (void)context, (void)slot, (void)form;
    return NULL;
}

/* Packs the parameters. Numbers never change, so they are packed once; each parameter of the code
 * gets the index of its word. */
static int read_parameters(struct silo_xla_call *call, PyObject *parameters) {
    const struct silo_packing *packing = &call->binding->packing;
    const Py_ssize_t count = PyTuple_Size(parameters);
    uint64_t codes[SILO_MAX_PARAMETERS];
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_parameter(PyTuple_GetItem(parameters, i), &call->words[i + 1], &codes[i]) != 0)
            return -1;
    }
    if (check_packing(call, codes) != 0)
        return -1;
    void *params[packing->room + 1];
    const struct silo_values values = {call->words + 1, call->words + call->scratch_at, NULL, NULL};
    silo_pack(packing, &values, params, no_map, NULL);
    for (uint32_t i = 0; i < packing->count; i++)
        call->places[i] = (uint16_t)((uint64_t *)params[i] - call->words);
    return 0;
}

static int read_grid(struct silo_xla_call *call, PyObject *grid) {
    const struct silo_function *function = &call->binding->loaded->function;
    int64_t dims[3];
    silo_error error;
    long long extents[3];
    if (!PyArg_ParseTuple(grid, "LLL", &extents[0], &extents[1], &extents[2]))
        return -1;
    for (int axis = 0; axis < 3; axis++) {
        dims[axis] = extents[axis];
        if (dims[axis] < 0) {
            PyErr_Format(silo_argument_error, "%s: axis %d of the grid is %lld, which is negative",
                         call->kernel, axis, extents[axis]);
            return -1;
        }
    }
    const enum silo_grid_state state = silo_grid_check(function, dims);
    if (state == SILO_GRID_REFUSED) {
        const struct silo_grid_fault fault = silo_grid_limits(function, dims);
        silo_grid_refuse(&fault, call->kernel, dims, NULL, &error);
        return silo_raise(&error);
    }
    call->empty = state == SILO_GRID_EMPTY;
    for (int axis = 0; axis < 3; axis++)
        call->grid[axis] = (uint32_t)dims[axis];
    return 0;
}

static PyObject *py_keep(PyObject *module, PyObject *args) {
    (void)module;
    const char *digest;
    Py_ssize_t length;
    int device;
    PyObject *binding, *parameters, *operands, *results, *grid;
    if (!PyArg_ParseTuple(args, "s#iO!O!O!O!O!", &digest, &length, &device, silo_binding_type,
                          &binding, &PyTuple_Type, &parameters, &PyTuple_Type, &operands,
                          &PyTuple_Type, &results, &PyTuple_Type, &grid))
        return NULL;
    if (length != SILO_XLA_DIGEST)
        return PyErr_Format(PyExc_ValueError, "a digest has %d characters", SILO_XLA_DIGEST);
    const struct silo_packing *packing = &((struct silo_binding *)binding)->packing;
    struct silo_xla_call *call = new_call(packing, parameters, operands, results);
    if (call == NULL)
        return NULL;
    memcpy(call->digest, digest, SILO_XLA_DIGEST);
    call->device = device;
    Py_INCREF(binding);
    call->binding = (struct silo_binding *)binding;
    call->launch = call->binding->loaded->driver->launch;
    call->function = &call->binding->loaded->function;
    call->takes_scratch = packing->takes_scratch && call->function->device != NULL;
    call->kernel = copied_text(call->binding->loaded->name);
    if (call->kernel != NULL && call->binding->loaded->function.handle == NULL)
        PyErr_Format(silo_argument_error,
                     "%s is run by a library and not by a driver, so XLA's programs cannot call it",
                     call->kernel);
    if (PyErr_Occurred() || read_parameters(call, parameters) != 0 ||
        read_buffers(call, operands, results) != 0 || read_grid(call, grid) != 0) {
        free_call(call);
        return NULL;
    }
    if (!silo_xla_publish(call))
        free_call(call);
    Py_RETURN_NONE;
}

/* ---- asking for a call ---- */

/* Writes the exception that is set as text into `message`, and clears it. */
static void say_exception(char *message, size_t size) {
    PyObject *exception = silo_take_exception();
    PyObject *kind = exception ? PyType_GetName(Py_TYPE(exception)) : NULL;
    PyObject *text = exception ? PyObject_Str(exception) : NULL;
    const char *name = kind ? PyUnicode_AsUTF8AndSize(kind, NULL) : NULL;
    const char *error_text = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    snprintf(message, size, "%s: %s", name ? name : "an exception", error_text ? error_text : "");
    PyErr_Clear();
    Py_XDECREF(kind);
    Py_XDECREF(text);
    Py_XDECREF(exception);
}

static int resolve(const char *digest, const char *platform, int32_t device, char *message,
                   size_t size) {
    if (!Py_IsInitialized()) {
        snprintf(message, size, "Python has ended, which would find the kernel of a program");
        return -1;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *call = resolver, *result = NULL;
    if (call == NULL) {
        PyErr_SetString(silo_device_error, "nothing here finds kernels of programs: call "
                                           "silo.integrations.jax.connect()");
    } else {
        Py_INCREF(call);
        result = PyObject_CallFunction(call, "s#si", digest, (Py_ssize_t)SILO_XLA_DIGEST, platform,
                                       (int)device);
        Py_DECREF(call);
    }
    if (result == NULL)
        say_exception(message, size);
    Py_XDECREF(result);
    PyGILState_Release(state);
    return result != NULL ? 0 : -1;
}

static PyObject *py_connect(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *functions;
    int minor;
    if (!PyArg_ParseTuple(args, "Oi", &functions, &minor))
        return NULL;
    if (!PyCallable_Check(functions))
        return PyErr_Format(PyExc_TypeError, "a resolver is a callable");
    PyObject *old = resolver;
    Py_INCREF(functions);
    resolver = functions;
    silo_xla_minor = minor;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* ---- the handlers ---- */

typedef struct silo_xla_error *handler(struct silo_xla_frame *frame);

static PyObject *capsule_of(handler *function) {
    void *address;
    memcpy(&address, &function, sizeof address);
    return PyCapsule_New(address, NULL, NULL); /* jaxlib expects a capsule without a name */
}

static PyObject *py_handlers(PyObject *module, PyObject *args) {
    (void)module;
    const char *platform;
    if (!PyArg_ParseTuple(args, "s", &platform))
        return NULL;
    const bool on_gpu = strcmp(platform, "cuda") == 0;
    if (!on_gpu && strcmp(platform, "cpu") != 0)
        return PyErr_Format(PyExc_ValueError, "a handler is for cpu or cuda, not %s", platform);
    handler *const function = on_gpu ? silo_xla_on_cuda : silo_xla_on_cpu;
    PyObject *execute = capsule_of(function), *early = capsule_of(function), *result = NULL;
    if (execute != NULL && early != NULL)
        result = Py_BuildValue("{sOsO}", "execute", execute, on_gpu ? "initialize" : "instantiate",
                               early);
    Py_XDECREF(execute);
    Py_XDECREF(early);
    return result;
}

static PyMethodDef methods[] = {
    {"xla_keep", py_keep, METH_VARARGS,
     "xla_keep(digest, device, binding, parameters, operands, results, grid)\n\nLaunch this where "
     "a "
     "program of XLA names the digest on that device. It is kept as long as the process lives."},
    {"xla_connect", py_connect, METH_VARARGS,
     "xla_connect(resolver, minor)\n\nresolver(digest, platform, device) keeps the call of a "
     "digest, or raises; minor is the version of XLA's interface."},
    {"xla_handlers", py_handlers, METH_VARARGS,
     "xla_handlers(platform) -> dict\n\nWhat XLA calls on 'cpu' or 'cuda': a capsule a stage."},
    {NULL, NULL, 0, NULL},
};

int silo_xla_init(PyObject *module) {
    silo_xla_resolver = resolve;
    return PyModule_AddFunctions(module, methods);
}
