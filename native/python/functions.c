#include "functions.h"

#include "dtypes.h"
#include "errors.h"
#include "expression.h"
#include "generator.h"

const char silo_py_evaluate_doc[] =
    "evaluate(program, values, arrays=None) -> (error, value)\n\n"
    "Run an expression program. `arrays` has one (sizes, strides, itemsize) or None a slot.";

const char silo_py_tabulate_doc[] =
    "tabulate(program, shape, out) -> (error, element)\n\n"
    "Run an expression program over an array's indices, slot k the one of axis k, and store its\n"
    "value for each element in C order into a writable buffer of 64-bit integers. Stops at the\n"
    "first element whose value is an error, and says which.";

const char silo_py_generate_doc[] =
    "generate(fill, code, bits, seed, first, count, a, b, low, span, out) -> None\n\n"
    "Fill a writable buffer with elements first ... first + count - 1 of a generated array.";

/* The values and arrays that evaluate() collects; they live on its stack. */
struct gathered {
    int64_t values[SILO_MAX_PARAMETERS];
    int64_t numbers[SILO_MAX_PARAMETERS][2][8];
    const int64_t *shapes[SILO_MAX_PARAMETERS];
    const int64_t *strides[SILO_MAX_PARAMETERS];
    int32_t ndims[SILO_MAX_PARAMETERS];
    int32_t itemsizes[SILO_MAX_PARAMETERS];
};

static int gather_numbers(PyObject *sequence, int64_t out[8]) {
    Py_ssize_t count = PySequence_Size(sequence);
    if (count > 8) {
        PyErr_SetString(PyExc_ValueError, "at most 8 axes here");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        out[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

static int gather(PyObject *values, PyObject *arrays, struct gathered *out) {
    const Py_ssize_t count = PyTuple_Size(values);
    if (count > SILO_MAX_PARAMETERS || (arrays != Py_None && PySequence_Size(arrays) != count)) {
        PyErr_SetString(PyExc_ValueError, "one entry a slot");
        return -1;
    }
    memset(out, 0, sizeof *out);
    for (Py_ssize_t i = 0; i < count; i++) {
        out->values[i] = PyLong_AsLongLong(PyTuple_GetItem(values, i));
        if (PyErr_Occurred())
            return -1;
        PyObject *array = arrays == Py_None ? NULL : PySequence_GetItem(arrays, i);
        if (array != NULL && array != Py_None) {
            PyObject *sizes, *strides;
            int itemsize, ndim = -1;
            if (PyArg_ParseTuple(array, "OOi", &sizes, &strides, &itemsize) &&
                (ndim = gather_numbers(sizes, out->numbers[i][0])) >= 0 &&
                gather_numbers(strides, out->numbers[i][1]) >= 0) {
                out->shapes[i] = out->numbers[i][0];
                out->strides[i] = out->numbers[i][1];
                out->ndims[i] = ndim;
                out->itemsizes[i] = itemsize;
            }
        }
        Py_XDECREF(array);
        if (PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

PyObject *silo_py_evaluate(PyObject *module, PyObject *args) {
    (void)module;
    const char *data;
    Py_ssize_t size;
    PyObject *values, *arrays = Py_None;
    if (!PyArg_ParseTuple(args, "y#O!|O", &data, &size, &PyTuple_Type, &values, &arrays))
        return NULL;
    if ((size_t)size % sizeof(silo_instruction) != 0)
        return PyErr_Format(PyExc_ValueError, "%zd bytes are not a program", size);
    struct gathered *gathered = PyMem_Malloc(sizeof *gathered);
    /* A copy in aligned memory, because the contents of a bytes object need not be aligned. */
    silo_instruction *program = PyMem_Malloc((size_t)size + 1);
    PyObject *result = NULL;
    if (gathered == NULL || program == NULL) {
        PyErr_NoMemory();
    } else {
        memcpy(program, data, (size_t)size);
        const int count = gather(values, arrays, gathered);
        if (count >= 0) {
            const silo_bindings bindings = {
                .slot_count = count,
                .values = gathered->values,
                .shapes = gathered->shapes,
                .strides = gathered->strides,
                .ndims = gathered->ndims,
                .itemsizes = gathered->itemsizes,
            };
            int64_t value = 0;
            const int32_t length = (int32_t)((size_t)size / sizeof *program);
            const int error = silo_expression_eval(program, length, &bindings, &value);
            result = Py_BuildValue("(iL)", error, (long long)value);
        }
    }
    PyMem_Free(program);
    PyMem_Free(gathered);
    return result;
}

/* Evaluates an expression for `count` elements in C order. Returns its error code; if it is not 0,
 * *element is the number of the element that failed. */
static int tabulate(const silo_instruction *program, int32_t length, const int64_t *shape,
                    int32_t axes, int64_t *out, int64_t count, int64_t *element) {
    int64_t index[8] = {0};
    const silo_bindings bindings = {.slot_count = axes, .values = index};
    for (*element = 0; *element < count; ++*element) {
        const int error = silo_expression_eval(program, length, &bindings, &out[*element]);
        if (error != 0)
            return error;
        for (int32_t axis = axes - 1; axis >= 0 && ++index[axis] == shape[axis]; axis--)
            index[axis] = 0;
    }
    return 0;
}

PyObject *silo_py_tabulate(PyObject *module, PyObject *args) {
    (void)module;
    const char *data;
    Py_ssize_t size;
    PyObject *shape;
    Py_buffer out;
    int64_t extents[8], count = 1, element = 0;
    if (!PyArg_ParseTuple(args, "y#O!w*", &data, &size, &PyTuple_Type, &shape, &out))
        return NULL;
    const int axes = gather_numbers(shape, extents);
    for (int axis = 0; axis < axes; axis++) {
        const int64_t extent = extents[axis];
        /* A count beyond the buffer's size is refused here, so the product cannot overflow. */
        count = extent < 0 || (extent != 0 && count > out.len / 8 / extent) ? -1 : count * extent;
        if (count < 0)
            break;
    }
    /* A copy in aligned memory, as instructions require. */
    silo_instruction *program = PyMem_Malloc((size_t)size + 1);
    PyObject *result = NULL;
    if (axes < 0) {
        ; /* gather_numbers has set the exception */
    } else if (program == NULL) {
        PyErr_NoMemory();
    } else if ((size_t)size % sizeof *program != 0 || count < 0 || count > out.len / 8 ||
               (uintptr_t)out.buf % 8 != 0) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are not a program, or %zd not a buffer for it",
                     size, out.len);
    } else {
        memcpy(program, data, (size_t)size);
        const int32_t length = (int32_t)((size_t)size / sizeof *program);
        int error;
        Py_BEGIN_ALLOW_THREADS error =
            tabulate(program, length, extents, axes, out.buf, count, &element);
        Py_END_ALLOW_THREADS result = Py_BuildValue("(iL)", error, (long long)element);
    }
    PyMem_Free(program);
    PyBuffer_Release(&out);
    return result;
}

PyObject *silo_py_bucket(PyObject *module, PyObject *value) {
    (void)module;
    const long long number = PyLong_AsLongLong(value);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(silo_bucket(number));
}

PyObject *silo_py_generate(PyObject *module, PyObject *args) {
    (void)module;
    int fill, code, bits, error;
    unsigned long long seed, first, count, span;
    long long low;
    silo_fill_params params;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "iiiKKKddLKw*", &fill, &code, &bits, &seed, &first, &count,
                          &params.a, &params.b, &low, &span, &out))
        return NULL;
    params.low = low;
    params.span = span;
    const uint64_t itemsize = bits > 0 ? (uint64_t)bits / 8 : 0;
    if (itemsize == 0 || count > (uint64_t)out.len / itemsize ||
        (uintptr_t)out.buf % itemsize != 0) {
        PyBuffer_Release(&out);
        return PyErr_Format(PyExc_ValueError,
                            "%llu elements of %d bits do not fit the buffer of %zd bytes", count,
                            bits, out.len);
    }
    Py_BEGIN_ALLOW_THREADS error =
        silo_generate(fill, code, bits, seed, first, count, &params, out.buf);
    Py_END_ALLOW_THREADS PyBuffer_Release(&out);
    if (error != 0)
        return PyErr_Format(PyExc_ValueError, "no fill %d for DLPack type %d of %d bits", fill,
                            code, bits);
    Py_RETURN_NONE;
}

PyObject *silo_py_narrow(PyObject *module, PyObject *args) {
    (void)module;
    double value;
    const char *name;
    if (!PyArg_ParseTuple(args, "ds", &value, &name))
        return NULL;
    return PyLong_FromLong(strcmp(name, "float16") == 0 ? silo_fp16_bits(value)
                                                        : silo_bf16_bits(value));
}

PyObject *silo_py_dtype_named(PyObject *module, PyObject *name) {
    (void)module;
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (text == NULL)
        return NULL;
    const struct silo_dtype type = silo_dtype_named(text, (size_t)length);
    if (type.bits == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(iisz)", (int)type.code, (int)type.bits, silo_dtype_name(type),
                         silo_dtype_format(type));
}
