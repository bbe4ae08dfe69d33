#include "given_grid.h"

#include "arguments.h"
#include "errors.h"
#include "plan.h"
#include "stand_in.h"

static const char axis_name[3] = {'x', 'y', 'z'};

int silo_grid_decode(struct silo_grid_programs *grid, PyObject *programs) {
    silo_error error;
    const Py_ssize_t axes = PyTuple_Check(programs) ? PyTuple_Size(programs) : 0;
    memset(grid, 0, sizeof *grid);
    if (axes < 1 || axes > 3) {
        PyErr_SetString(PyExc_ValueError, "a grid has 1 to 3 programs");
        return -1;
    }
    for (Py_ssize_t i = 0; i < axes; i++) {
        char *data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(programs, i), &data, &size) != 0)
            return -1;
        if (silo_grid_add_axis(grid, data, (size_t)size, &error) != 0)
            return silo_raise_as(PyExc_ValueError, &error);
    }
    return 0;
}

/* Reads one dimension of a grid. An integer beyond 64 bits is an error that says "larger than any
 * grid". */
static int parse_dimension(PyObject *kernel, PyObject *object, int axis, int64_t *out) {
    if (!PyLong_CheckExact(object) && silo_stood_for(object) != NULL)
        object = silo_stood_for(object);
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
                return -1; /* another thread made the list shorter */
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

/* Raises the error that silo_grid_refuse writes for a fault, and returns -1. */
static SILO_NOINLINE int raise_fault(PyObject *kernel, const struct silo_grid_fault *fault,
                                     const int64_t dims[3]) {
    silo_error error;
    const char *name = PyUnicode_AsUTF8AndSize(kernel, NULL);
    if (name == NULL)
        return -1;
    silo_grid_refuse(fault, name, dims, "", &error);
    return silo_raise(&error);
}

int silo_grid_raise_limits(PyObject *kernel, const struct silo_function *function,
                           const int64_t dims[3]) {
    const struct silo_grid_fault fault = silo_grid_limits(function, dims);
    return raise_fault(kernel, &fault, dims);
}

struct arrays {
    const int64_t *shapes[SILO_MAX_PARAMETERS];
    const int64_t *strides[SILO_MAX_PARAMETERS];
    int32_t ndims[SILO_MAX_PARAMETERS];
    int32_t itemsizes[SILO_MAX_PARAMETERS];
};

/* Reads the shapes of the arrays that the grid's expressions use into `shapes`, which the caller
 * owns and which has one entry for each of these arrays. */
static int read_arrays(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       PyObject *const *arguments, struct arrays *out, struct silo_shape *shapes) {
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < grid->arrays_used; i++) {
        const uint16_t slot = grid->arrays[i];
        PyObject *object = slot < plan->count ? arguments[slot] : NULL;
        if (object == NULL)
            continue; /* the argument is absent; evaluating the expression then reports that its
                         slot is empty */
        if (SILO_UNLIKELY(silo_stood_for(object) != NULL))
            object = silo_stood_for(object);
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

/* Evaluates a grid that depends on shapes. It is a separate function because its local arrays are
 * large and most grids need none. Returns -1 with an exception set, or with `fault` filled. */
static SILO_NOINLINE int evaluate_with_arrays(const struct silo_grid_programs *grid,
                                              const struct silo_plan *plan, const uint64_t *slots,
                                              PyObject *const *arguments, int64_t dims[3],
                                              struct silo_grid_fault *fault) {
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
    if (result == 0)
        result = silo_grid_evaluate(grid, &bindings, dims, fault);
    PyMem_Free(shapes);
    return result;
}

int silo_grid_declared(const struct silo_grid_programs *grid, const struct silo_plan *plan,
                       const uint64_t *slots, const uint64_t *codes, PyObject *const *arguments,
                       int64_t dims[3]) {
    struct silo_grid_fault fault = {.reason = SILO_GRID_NONE};
    int result = silo_grid_check_values(grid, plan->count, slots, codes, &fault);
    if (SILO_LIKELY(result == 0)) {
        const silo_bindings bindings = {.slot_count = plan->count,
                                        .values = (const int64_t *)slots};
        result = SILO_UNLIKELY(grid->arrays_used != 0)
                     ? evaluate_with_arrays(grid, plan, slots, arguments, dims, &fault)
                     : silo_grid_evaluate(grid, &bindings, dims, &fault);
    }
    if (SILO_LIKELY(result == 0) || fault.reason == SILO_GRID_NONE)
        return result;
    if (fault.reason == SILO_GRID_NOT_INTEGER)
        return silo_bad_argument(plan->kernel, plan->names[fault.slot],
                                 "a signed 64-bit integer, for the declared grid reads it",
                                 arguments[fault.slot]);
    return raise_fault(plan->kernel, &fault, dims);
}
