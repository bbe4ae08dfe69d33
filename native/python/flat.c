#include "flat.h"

int silo_flat_make(struct silo_flat *flat, PyObject *args, PyObject *keywords) {
    const Py_ssize_t positional = PyTuple_Size(args), named = keywords ? PyDict_Size(keywords) : 0;
    flat->positional = positional;
    flat->count = 0;
    flat->names = NULL;
    flat->values = PyMem_Calloc((size_t)(positional + named) + 1, sizeof *flat->values);
    if (flat->values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; flat->count < positional; flat->count++) {
        flat->values[flat->count] = PyTuple_GetItem(args, flat->count);
        Py_INCREF(flat->values[flat->count]);
    }
    if (named == 0)
        return 0;
    flat->names = PyTuple_New(named);
    if (flat->names == NULL)
        return -1;
    Py_ssize_t cursor = 0;
    PyObject *name, *value;
    while (PyDict_Next(keywords, &cursor, &name, &value)) {
        flat->values[flat->count] = value;
        Py_INCREF(value);
        Py_INCREF(name);
        if (PyTuple_SetItem(flat->names, flat->count++ - positional, name) != 0)
            return -1;
    }
    return 0;
}

void silo_flat_free(struct silo_flat *flat) {
    Py_CLEAR(flat->names);
    while (flat->count > 0)
        Py_DECREF(flat->values[--flat->count]);
    PyMem_Free(flat->values);
    flat->values = NULL;
}

PyObject *silo_flat_call(PyObject *self, PyObject *args, PyObject *keywords, vectorcallfunc call) {
    struct silo_flat flat;
    PyObject *result = NULL;
    if (silo_flat_make(&flat, args, keywords) == 0)
        result = call(self, flat.values, (size_t)flat.positional, flat.names);
    silo_flat_free(&flat);
    return result;
}
