#include "given_grid.h"

#include "arguments.h"
#include "errors.h"
#include "known_bindings.h"
#include "plan.h"

#include <stdlib.h>

static const char axis_name[3] = {'x', 'y', 'z'};

void silo_grid_clear(struct silo_grid_programs *grid) {
    for (int i = 0; i < 3; i++)
        free(grid->axis[i]);
    free(grid->values);
    free(grid->arrays);
    memset(grid, 0, sizeof *grid);
}

/* Add an index to a list it may already be in. */
static void note(uint16_t *list, uint32_t *used, int32_t index) {
    for (uint32_t i = 0; i < *used; i++) {
        if (list[i] == index)
            return;
    }
    list[(*used)++] = (uint16_t)index;
}

static int decode_axis(struct silo_grid_programs *grid, int axis, PyObject *program) {
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(program, &data, &size) != 0)
        return -1;
    const size_t one = sizeof(silo_instruction);
    if (size == 0 || (size_t)size % one != 0 || (size_t)size / one > 4096) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not a grid program", size);
        return -1;
    }
    silo_instruction *code = malloc((size_t)size);
    if (code == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(code, data, (size_t)size);
    grid->axis[axis] = code;
    grid->counts[axis] = (int32_t)((size_t)size / one);
    for (int32_t i = 0; i < grid->counts[axis]; i++) {
        const int32_t op = code[i].opcode, slot = code[i].b;
        const bool value = op == SILO_OP_ARGUMENT || op == SILO_OP_CDIV_ARGUMENT;
        const bool array = op == SILO_OP_EXTENT || op == SILO_OP_STRIDE || op == SILO_OP_ITEMSIZE;
        if ((value || array) && (slot < 0 || slot >= SILO_MAX_PARAMETERS)) {
            PyErr_Format(PyExc_ValueError, "a grid program names parameter %d", (int)slot);
            return -1;
        }
        if (value)
            note(grid->values, &grid->values_used, slot);
        if (array)
            note(grid->arrays, &grid->arrays_used, slot);
    }
    return 0;
}

/* Whether the program is of the usual kind, and then what it is. */
static bool usual_axis(const silo_instruction *code, int32_t count, struct silo_usual_axis *axis) {
    const bool divides = code->opcode == SILO_OP_CDIV_ARGUMENT && code->a > 0;
    if (count != 1 || !(divides || (code->opcode == SILO_OP_CONST && code->a >= 0)))
        return false;
    axis->value = code->a;
    axis->slot = divides ? (int16_t)code->b : -1;
    axis->shift = divides && (code->a & (code->a - 1)) == 0
                      ? (int8_t)__builtin_ctzll((unsigned long long)code->a)
                      : -1;
    return true;
}

int silo_grid_decode(struct silo_grid_programs *grid, PyObject *programs) {
    memset(grid, 0, sizeof *grid);
    Py_ssize_t axes = PyTuple_Check(programs) ? PyTuple_Size(programs) : 0;
    if (axes < 1 || axes > 3) {
        PyErr_SetString(PyExc_ValueError, "a grid has 1 to 3 programs");
        return -1;
    }
    grid->values = malloc(SILO_MAX_PARAMETERS * sizeof *grid->values);
    grid->arrays = malloc(SILO_MAX_PARAMETERS * sizeof *grid->arrays);
    if (grid->values == NULL || grid->arrays == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < axes; i++) {
        if (decode_axis(grid, i, PyTuple_GetItem(programs, i)) != 0)
            return -1;
        grid->usual = (i == 0 || grid->usual) &&
                      usual_axis(grid->axis[i], grid->counts[i], &grid->usual_axis[i]);
    }
    grid->axes = (int32_t)axes;
    return 0;
}

/* One dimension; `wide` integers cannot be right and are said to be too large. */
static int parse_dimension(PyObject *kernel, PyObject *object, int axis, int64_t *out) {
    PyObject *index = PyLong_CheckExact(object) ? NULL : PyNumber_Index(object);
    if (index == NULL && !PyLong_CheckExact(object)) {
        PyObject *cause = silo_take_exception();
        PyObject *text = silo_describe(object);
        if (text != NULL)
            PyErr_Format(silo_argument_error, "%U: grid dimension %c needs an integer, got %U",
                         kernel, axis_name[axis], text);
        Py_XDECREF(text);
        silo_chain(cause);
        return -1;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(index ? index : object, &overflow);
    Py_XDECREF(index);
    if (SILO_UNLIKELY(overflow != 0 || value < 0)) {
        PyErr_Format(silo_argument_error, "%U: grid dimension %c is %S, which is %s", kernel,
                     axis_name[axis], object, overflow > 0 ? "larger than any grid" : "negative");
        return -1;
    }
    *out = value;
    return 0;
}

int silo_grid_parse(PyObject *kernel, PyObject *grid, int64_t dims[3]) {
    dims[0] = dims[1] = dims[2] = 1;
    const bool tuple = PyTuple_Check(grid);
    if (tuple || PyList_Check(grid)) {
        Py_ssize_t size = tuple ? PyTuple_Size(grid) : PyList_Size(grid);
        if (size < 1 || size > 3) {
            PyErr_Format(silo_argument_error, "%U: a grid has 1 to 3 dimensions, got %zd", kernel,
                         size);
            return -1;
        }
        for (int i = 0; i < size; i++) {
            PyObject *item =
                tuple ? PyTuple_GetItem(grid, i) : PyList_GetItem(grid, i); /* borrowed */
            if (item == NULL)
                return -1; /* a list that shrank meanwhile */
            Py_INCREF(item);
            int result = parse_dimension(kernel, item, i, &dims[i]);
            Py_DECREF(item);
            if (result != 0)
                return -1;
        }
        return 0;
    }
    return parse_dimension(kernel, grid, 0, &dims[0]);
}

static int evaluation_error(PyObject *kernel, int axis, int error) {
    static const char *const reasons[] = {
        [SILO_EXPRESSION_OVERFLOW] = "its value does not fit 64 bits",
        [SILO_EXPRESSION_DIVISION] = "it divides by zero",
        [SILO_EXPRESSION_PROGRAM] = "it is not a program",
        [SILO_EXPRESSION_SLOT] = "it reads an argument that is not an array",
        [SILO_EXPRESSION_AXIS] = "it reads an axis that the array does not have",
    };
    PyErr_Format(silo_expression_error,
                 "%U: the declared grid has no dimension %c for these arguments: %s", kernel,
                 axis_name[axis], reasons[error]);
    return -1;
}

struct arrays {
    const int64_t *shapes[SILO_MAX_PARAMETERS];
    const int64_t *strides[SILO_MAX_PARAMETERS];
    int32_t ndims[SILO_MAX_PARAMETERS];
    int32_t itemsizes[SILO_MAX_PARAMETERS];
};

/* Read what the programs need of their arrays into `shapes` (owned by the caller), one entry an
 * array. */
static int read_arrays(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       PyObject *const *arguments, struct arrays *out, struct silo_shape *shapes) {
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < grid->arrays_used; i++) {
        const uint16_t slot = grid->arrays[i];
        PyObject *object = slot < plan->count ? arguments[slot] : NULL;
        if (object == NULL)
            continue; /* the evaluator reports the slot */
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
        if (adapter == NULL)
            return -1;
        if (adapter->kind == SILO_ADAPT_NOTHING ||
            (adapter->kind >= SILO_ADAPT_INT && adapter->kind != SILO_ADAPT_DESCRIPTOR))
            continue;
        if (silo_shape_read(object, adapter, &shapes[i]) != 0) {
            PyObject *cause = silo_take_exception();
            PyErr_Format(silo_argument_error,
                         "%U: the declared grid needs the shape of argument '%U'", plan->kernel,
                         plan->names[slot]);
            silo_chain(cause);
            return -1;
        }
        out->shapes[slot] = shapes[i].sizes;
        out->strides[slot] = shapes[i].strides;
        out->ndims[slot] = shapes[i].ndim;
        out->itemsizes[slot] = shapes[i].itemsize;
    }
    return 0;
}

/* Kept apart: the arrays are large, and most grids need none. */
static SILO_NOINLINE int evaluate_with_arrays(const struct silo_grid_programs *grid,
                                              const struct silo_plan *plan, const uint64_t *slots,
                                              PyObject *const *arguments, int64_t dims[3]) {
    struct arrays arrays;
    struct silo_shape *shapes = PyMem_Malloc(grid->arrays_used * sizeof *shapes);
    if (shapes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int result = read_arrays(grid, plan, arguments, &arrays, shapes);
    const silo_bindings bindings = {
        .slot_count = plan->count,
        .values = (const int64_t *)slots,
        .shapes = arrays.shapes,
        .strides = arrays.strides,
        .ndims = arrays.ndims,
        .itemsizes = arrays.itemsizes,
    };
    for (int axis = 0; axis < grid->axes && result == 0; axis++) {
        int error =
            silo_expression_eval(grid->axis[axis], grid->counts[axis], &bindings, &dims[axis]);
        if (error != 0)
            result = evaluation_error(plan->kernel, axis, error);
    }
    PyMem_Free(shapes);
    return result;
}

int silo_grid_evaluate(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       const uint64_t *slots, const uint64_t *codes, PyObject *const *arguments,
                       int64_t dims[3]) {
    dims[0] = dims[1] = dims[2] = 1;
    for (uint32_t i = 0; i < grid->values_used; i++) {
        const uint16_t slot = grid->values[i];
        if (SILO_UNLIKELY(slot >= plan->count))
            return evaluation_error(plan->kernel, 0, SILO_EXPRESSION_SLOT);
        if (SILO_UNLIKELY(!silo_code_is_integer(codes[slot], slots[slot])))
            return silo_bad_argument(plan->kernel, plan->names[slot],
                                     "a signed 64-bit integer, for the declared grid reads it",
                                     arguments[slot]);
    }
    if (SILO_UNLIKELY(grid->arrays_used != 0)) {
        if (evaluate_with_arrays(grid, plan, slots, arguments, dims) != 0)
            return -1;
    } else {
        const silo_bindings bindings = {.slot_count = plan->count,
                                        .values = (const int64_t *)slots};
        for (int axis = 0; axis < grid->axes; axis++) {
            int error =
                silo_expression_eval(grid->axis[axis], grid->counts[axis], &bindings, &dims[axis]);
            if (SILO_UNLIKELY(error != 0))
                return evaluation_error(plan->kernel, axis, error);
        }
    }
    for (int axis = 0; axis < 3; axis++) {
        if (SILO_UNLIKELY(dims[axis] < 0)) {
            PyErr_Format(silo_argument_error,
                         "%U: the declared grid gives %lld as dimension %c for these arguments",
                         plan->kernel, (long long)dims[axis], axis_name[axis]);
            return -1;
        }
    }
    return 0;
}

int silo_grid_too_large(PyObject *kernel, const int64_t dims[3], int axis, uint64_t limit) {
    PyErr_Format(silo_argument_error,
                 "%U: grid (%lld, %lld, %lld): dimension %c is limited to %llu on this device",
                 kernel, (long long)dims[0], (long long)dims[1], (long long)dims[2],
                 axis_name[axis], (unsigned long long)limit);
    return -1;
}
