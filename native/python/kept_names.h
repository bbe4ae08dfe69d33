/* Names of arguments that stay the same objects from call to call, so that they compare by address.
 */
#ifndef SILO_KEPT_NAMES_H
#define SILO_KEPT_NAMES_H

#include "python.h"

#define SILO_CANONICAL_NAMES 1024 /* a power of two */

/* Names and the interned strings that equal them; owned. */
struct silo_canonical {
    PyObject *name, *interned;
};
extern struct silo_canonical silo_canonical[SILO_CANONICAL_NAMES];

/* For a name that the table does not have; it has it afterwards. */
PyObject *silo_canonical_slow(PyObject *name);

/* The interned string that equals a name, borrowed; the object itself if it is not a string. */
SILO_INLINE PyObject *silo_canonical_name(PyObject *name) {
    const struct silo_canonical *at =
        &silo_canonical[(size_t)(uintptr_t)name >> 4 & (SILO_CANONICAL_NAMES - 1)];
    return SILO_LIKELY(at->name == name) ? at->interned : silo_canonical_slow(name);
}

/* The names as a tuple (a new reference), which is kept so that a call site gets the same object.
 * */
PyObject *silo_kept_tuple(PyObject *const *names, Py_ssize_t count);

#endif
