/* The bindings of a launcher: a guard table whose values are references to Python objects.
 *
 * Threads: no Python code runs between a look-up and taking a reference to the binding found, so
 * the GIL is enough. A free-threaded build holds the lock for this, and wherever the table changes.
 */
#ifndef SILO_KNOWN_BINDINGS_H
#define SILO_KNOWN_BINDINGS_H

#include "guard.h"
#include "locks.h"
#include "python.h"

/* In an entry, `binding` is an owned Binding and `keep` an owned tuple of the objects whose
 * addresses are in the key. */
struct silo_known {
    struct silo_guard guard;
    silo_lock lock;
};

/* Returns the binding for a key (a new reference), or NULL without an exception. Stores the key's
 * hash in `*hash` if none is found. */
SILO_INLINE PyObject *silo_known_find(struct silo_known *table, const uint64_t *key, uint32_t words,
                                      uint64_t *hash) {
    SILO_LOCK(&table->lock);
    PyObject *binding = silo_guard_find(&table->guard, key, words, hash);
    Py_XINCREF(binding);
    SILO_UNLOCK(&table->lock);
    return binding;
}

/* Adds or replaces the binding of a key, and takes references of its own. Returns -1 with an
 * exception set. */
int silo_known_insert(struct silo_known *table, const uint64_t *key, uint32_t words, uint64_t hash,
                      PyObject *binding, PyObject *keep);

/* Removes all entries. If this releases the last reference to a binding, any code may run. */
void silo_known_clear(struct silo_known *table);

/* Returns a list of all bindings, in no order; NULL with an exception set. */
PyObject *silo_known_list(struct silo_known *table);

int silo_known_traverse(const struct silo_known *fixed, visitproc visit, void *arg);

#endif
