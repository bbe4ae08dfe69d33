#include "json_values.h"

PyObject *silo_py_text(const char *data, size_t bytes) {
    return PyUnicode_DecodeUTF8(data, (Py_ssize_t)bytes, "strict");
}

const char *silo_py_find_text(PyObject *text, Py_ssize_t *bytes) {
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, bytes);
    if (utf8 == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        PyErr_Clear();
    return utf8;
}

/* Makes an integer beyond 64 bits from its digits. */
static PyObject *big_integer(const struct silo_json *node) {
    PyObject *digits = silo_py_text(node->text, node->count);
    PyObject *number = digits != NULL
                           ? PyObject_CallFunctionObjArgs((PyObject *)&PyLong_Type, digits, NULL)
                           : NULL;
    Py_XDECREF(digits);
    return number;
}

static PyObject *list(const struct silo_json *node) {
    PyObject *list_object = PyList_New(node->count);
    for (uint32_t i = 0; list_object != NULL && i < node->count; i++) {
        PyObject *item = silo_py_json(&node->items[i]);
        if (item == NULL || PyList_SetItem(list_object, i, item) != 0)
            Py_CLEAR(list_object);
    }
    return list_object;
}

static PyObject *object(const struct silo_json *node) {
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict != NULL && i < node->count; i++) {
        const struct silo_json *pair = &node->items[2 * i];
        PyObject *name = silo_py_text(pair->text, pair->count);
        PyObject *value = name != NULL ? silo_py_json(pair + 1) : NULL;
        if (value == NULL || PyDict_SetItem(dict, name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
        Py_XDECREF(name);
    }
    return dict;
}

PyObject *silo_py_json(const struct silo_json *node) {
    switch ((enum silo_json_type)node->type) {
    case SILO_JSON_BOOL:
        return PyBool_FromLong(node->integer != 0);
    case SILO_JSON_INT:
        return PyLong_FromLongLong(node->integer);
    case SILO_JSON_BIG_INT:
        return big_integer(node);
    case SILO_JSON_TEXT:
        return silo_py_text(node->text, node->count);
    case SILO_JSON_LIST:
        return list(node);
    case SILO_JSON_OBJECT:
        return object(node);
    case SILO_JSON_NULL:
        break;
    }
    Py_RETURN_NONE;
}
