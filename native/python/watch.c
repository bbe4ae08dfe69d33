#include "watch.h"

bool silo_watch_check(PyObject *watched) {
    const Py_ssize_t count = PyTuple_Check(watched) ? PyTuple_Size(watched) : -1;
    if (count < 0 || count % 3 != 0) {
        PyErr_SetString(PyExc_TypeError, "places are a tuple of (holder, name, value, ...)");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i += 3) {
        PyObject *name = PyTuple_GetItem(watched, i + 1);
        if (name != Py_None && !PyUnicode_Check(name)) {
            PyErr_SetString(PyExc_TypeError, "the name of a place is a str or None");
            return false;
        }
    }
    return true;
}

static SILO_NOINLINE bool attribute_holds(PyObject *holder, PyObject *name, PyObject *value) {
    PyObject *now = PyObject_GetAttr(holder, name);
    if (now == NULL)
        PyErr_Clear(); /* the attribute is gone, and the next function that reads it raises the
                          error */
    const bool same = now == value;
    Py_XDECREF(now);
    return same;
}

bool silo_watch_holds(PyObject *watched) {
    const Py_ssize_t count = PyTuple_Size(watched);
    for (Py_ssize_t i = 0; i < count; i += 3) {
        PyObject *holder = PyTuple_GetItem(watched, i), *name = PyTuple_GetItem(watched, i + 1),
                 *value = PyTuple_GetItem(watched, i + 2);
        if (SILO_UNLIKELY(name == Py_None)) {
            if (PyObject_RichCompareBool(holder, value, Py_EQ) != 1)
                return false;
        } else if (SILO_LIKELY(PyDict_CheckExact(holder))) {
            if (SILO_UNLIKELY(PyDict_GetItemWithError(holder, name) != value))
                return false;
        } else if (SILO_UNLIKELY(!attribute_holds(holder, name, value))) {
            return false;
        }
    }
    return true;
}
