#include "canonical_names.h"

#define CACHED_TUPLES 256 /* a power of two */

struct silo_canonical silo_canonical[SILO_CANONICAL_NAMES];

/* A hash table of argument-name tuples; the hash is made from the addresses of the names. */
static PyObject *tuples[CACHED_TUPLES]; /* owned tuples; NULL if the slot is empty */

SILO_NOINLINE PyObject *silo_canonical_slow(PyObject *name) {
    if (!PyUnicode_CheckExact(name))
        return name;
    struct silo_canonical *entry =
        &silo_canonical[(size_t)(uintptr_t)name >> 4 & (SILO_CANONICAL_NAMES - 1)];
    PyObject *interned = Py_NewRef(name), *old = entry->name;
    PyUnicode_InternInPlace(&interned);
    entry->name = Py_NewRef(name);
    entry->interned = interned;
    Py_XDECREF(old); /* releases the old name; its interned string is never released, because calls
                        in progress may use it */
    return interned;
}

PyObject *silo_cached_tuple(PyObject *const *names, Py_ssize_t count) {
    uint64_t hash = (uint64_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)names[i] >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    PyObject **slot = &tuples[hash >> 56 & (CACHED_TUPLES - 1)], *old = *slot;
    if (old != NULL && PyTuple_Size(old) == count) {
        Py_ssize_t i = 0;
        while (i < count && PyTuple_GetItem(old, i) == names[i])
            i++;
        if (i == count)
            return Py_NewRef(old);
    }
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(names[i]));
    if (tuple != NULL) {
        *slot = Py_NewRef(tuple);
        Py_XDECREF(old);
    }
    return tuple;
}
