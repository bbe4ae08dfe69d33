#include "descriptor_object.h"

#include "argument_word.h"
#include "errors.h"
#include "names.h"
#include "stand_in.h"

#include <stdarg.h>
#include <stdio.h>

static PyObject *s_base, *s_shape, *s_strides, *s_block_shape, *s_padding, *s_tf32, *s_map, *s_zero,
    *s_nan, *s_layout, *s_swizzle, *s_transposed, *s_fp4, *s_cga;

int silo_descriptor_init(void) {
    static const struct silo_name names[] = {
        {&s_base, "base"},
        {&s_shape, "shape"},
        {&s_strides, "strides"},
        {&s_block_shape, "block_shape"},
        {&s_padding, "padding"},
        {&s_tf32, "round_f32_to_tf32"},
        {&s_map, "_silo_tensor_map"},
        {&s_zero, "zero"},
        {&s_nan, "nan"},
        {&s_layout, "layout"},
        {&s_swizzle, "swizzle_byte_width"},
        {&s_transposed, "transposed"},
        {&s_fp4, "fp4_padded"},
        {&s_cga, "cga_layout"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}

int silo_refuse_descriptor(PyObject *kernel, PyObject *name, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    PyObject *cause = silo_take_exception();
    PyErr_Format(silo_argument_error, "%U: the tensor descriptor '%U' %s", kernel, name, text);
    silo_chain(cause);
    return -1;
}

struct silo_members silo_members_of(PyObject *object) {
    struct silo_members members = {object, NULL, false};
#ifndef Py_GIL_DISABLED /* in free-threaded Python an object borrowed from a dictionary may be     \
                           freed by another thread */
    members.dict = PyObject_GenericGetDict(object, NULL);
    if (members.dict == NULL)
        silo_forget_error(); /* objects of a class with __slots__ have no dictionary */
#endif
    return members;
}

/* Returns a member of the object, from its dictionary if possible: a new reference, or NULL with an
 * exception set. */
static PyObject *member(struct silo_members *members, PyObject *name) {
    PyObject *value = NULL;
    if (members->dict != NULL) {
        value = PyDict_GetItemWithError(members->dict, name);
        Py_XINCREF(value);
        if (value == NULL && PyErr_Occurred())
            return NULL;
    }
    if (value != NULL)
        return value;
    members->ran_python = true;
    return PyObject_GetAttr(members->object, name);
}

static int one_integer(PyObject *item, int64_t *value) {
    PyObject *number = PyNumber_Index(silo_stood_for(item) != NULL ? silo_stood_for(item) : item);
    if (number == NULL)
        return -1;
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Reads a member that is a sequence of integers. Returns their number, or -1 with an exception set.
 */
static int integers(struct silo_members *members, PyObject *name, int64_t values[SILO_MAX_RANK]) {
    PyObject *sequence = member(members, name);
    if (sequence == NULL)
        return -1;
    PyObject *items = sequence;
    if (!PyTuple_Check(sequence)) { /* torch.Size is a tuple */
        /* A list is copied in one step, because another thread may change it. */
        items = PySequence_Tuple(sequence);
        Py_DECREF(sequence);
        if (items == NULL)
            return -1;
    }
    const Py_ssize_t count = PyTuple_Size(items);
    int result = (int)count;
    if (count < 1 || count > SILO_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%U has 1 to %d extents, not %zd", name, SILO_MAX_RANK,
                     count);
        result = -1;
    }
    for (int i = 0; i < result; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        int failed;
        if (PyLong_CheckExact(item)) {
            values[i] = PyLong_AsLongLong(item);
            failed = values[i] == -1 && PyErr_Occurred();
        } else {
            failed = one_integer(item, &values[i]);
        }
        if (failed)
            result = -1;
    }
    Py_DECREF(items);
    return result;
}

int silo_descriptor_pads(struct silo_members *members) {
    PyObject *padding = member(members, s_padding);
    int result = -1;
    if (padding == NULL)
        return -1;
    if (padding == s_zero)
        result = 0;
    else if (padding == s_nan)
        result = 1;
    else if (PyUnicode_Check(padding) && PyUnicode_CompareWithASCIIString(padding, "zero") == 0)
        result = 0;
    else if (PyUnicode_Check(padding) && PyUnicode_CompareWithASCIIString(padding, "nan") == 0)
        result = 1;
    else
        PyErr_Format(PyExc_ValueError, "padding is 'zero' or 'nan', not %R", padding);
    Py_DECREF(padding);
    return result;
}

int silo_descriptor_rounds(struct silo_members *members) {
    PyObject *value = member(members, s_tf32);
    const int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

PyObject *silo_descriptor_base(struct silo_members *members) {
    return member(members, s_base);
}

int silo_descriptor_extents(struct silo_members *members, int64_t values[SILO_MAX_RANK]) {
    return integers(members, s_shape, values);
}

int silo_descriptor_strides(struct silo_members *members, int64_t values[SILO_MAX_RANK]) {
    return integers(members, s_strides, values);
}

int silo_descriptor_block(struct silo_members *members, int64_t values[SILO_MAX_RANK]) {
    return integers(members, s_block_shape, values);
}

PyObject *silo_descriptor_stored_map(struct silo_members *members) {
    return member(members, s_map);
}

int silo_descriptor_keep(PyObject *object, PyObject *map) {
    /* The type's own __setattr__ is not called, because a frozen dataclass's __setattr__ raises an
     * error. */
    return PyObject_GenericSetAttr(object, s_map, map);
}

/* Returns whether an attribute is true; -1 with an exception set. */
static int truth(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    const int result = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return result;
}

static int layout_bits(PyObject *layout) {
    PyObject *width = PyObject_GetAttr(layout, s_swizzle);
    int64_t bytes = -1;
    const int failed = width ? one_integer(width, &bytes) : -1;
    Py_XDECREF(width);
    const int transposed = failed ? -1 : truth(layout, s_transposed);
    const int fp4 = transposed < 0 ? -1 : truth(layout, s_fp4);
    const int clusters = fp4 < 0 ? -1 : truth(layout, s_cga);
    if (clusters < 0)
        return -1;
    const int form = bytes == 0 ? 0 : bytes == 32 ? 1 : bytes == 64 ? 2 : bytes == 128 ? 3 : -1;
    if (form < 0 || (fp4 && form != 3) || clusters) {
        PyErr_SetString(PyExc_ValueError,
                        clusters ? "Silo takes descriptors of blocks that lie in one CTA, and "
                                   "cga_layout spreads this one over several"
                                 : "a swizzle is 0, 32, 64 or 128 bytes wide, and 128 for fp4");
        return -1;
    }
    return 1 + 2 * (fp4 ? SILO_BLOCK_FP4 : form) + transposed;
}

int silo_descriptor_layout(struct silo_members *members) {
    PyObject *layout = member(members, s_layout);
    const int bits = layout == NULL ? -1 : layout == Py_None ? 0 : layout_bits(layout);
    Py_XDECREF(layout);
    return bits;
}

bool silo_descriptors_have_layouts(PyObject *type) {
    PyObject *fields = PyObject_GetAttrString(type, "__dataclass_fields__");
    const int answer = fields ? PyObject_IsTrue(fields) : 0;
    bool has = false;
    if (answer > 0)
        has = PyMapping_HasKey(fields, s_layout) != 0;
    else
        silo_forget_error();
    Py_XDECREF(fields);
    return has;
}

bool silo_descriptors_round(PyObject *type) {
    /* The attribute is found on the class if the class gives it a default. */
    PyObject *rounds = PyObject_GetAttr(type, s_tf32);
    if (rounds == NULL)
        silo_forget_error();
    Py_XDECREF(rounds);
    return rounds != NULL;
}

int silo_descriptor_shape(PyObject *object, struct silo_shape *shape) {
    struct silo_members members = {object, NULL, false};
    const int rank = integers(&members, s_shape, shape->sizes);
    if (rank < 0)
        return -1;
    const int strides = integers(&members, s_strides, shape->strides);
    if (strides != rank) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a descriptor has one stride for each extent");
        return -1;
    }
    shape->ndim = rank;
    shape->itemsize = 0;
    return 0;
}
