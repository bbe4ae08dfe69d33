/* Replaces names of arguments by interned strings that stay the same objects from call to call, so
 * that names compare by address. */
#ifndef SILO_CANONICAL_NAMES_H
#define SILO_CANONICAL_NAMES_H

#include "python.h"

#define SILO_CANONICAL_NAMES 1024 /* a power of two */

/* A name and the interned string that equals it; both owned. */
struct silo_canonical {
    PyObject *name, *interned;
};
extern struct silo_canonical silo_canonical[SILO_CANONICAL_NAMES];

/* Adds a name that the table lacks; returns its interned string, borrowed. */
PyObject *silo_canonical_slow(PyObject *name);

/* Returns the interned string that equals a name, borrowed. An object that is not a str is returned
 * itself. */
SILO_INLINE PyObject *silo_canonical_name(PyObject *name) {
    const struct silo_canonical *entry =
        &silo_canonical[(size_t)(uintptr_t)name >> 4 & (SILO_CANONICAL_NAMES - 1)];
    return SILO_LIKELY(entry->name == name) ? entry->interned : silo_canonical_slow(name);
}

/* Returns the names as a tuple (a new reference). The tuple is cached, so that a call site gets the
 * same object each time. */
PyObject *silo_cached_tuple(PyObject *const *names, Py_ssize_t count);

#endif
