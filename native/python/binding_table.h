/* The bindings of a launcher: a guard table whose values are references to Python objects.
 *
 * Threads: between finding a binding and taking a reference to it, no Python code runs, so the GIL
 * is enough protection. A free-threaded build holds the lock during these two steps and during
 * every change of the table. */
#ifndef SILO_BINDING_TABLE_H
#define SILO_BINDING_TABLE_H

#include "guard.h"
#include "locks.h"
#include "python.h"

/* In an entry, `binding` is an owned Binding and `keep` an owned tuple of the objects whose
 * addresses are in the key. */
struct silo_binding_table {
    struct silo_guard guard;
    silo_lock lock;
};

/* Returns the binding for a key (a new reference), or NULL without an exception. Stores the key's
 * hash in `*hash` if none is found. */
SILO_INLINE PyObject *silo_binding_table_find(struct silo_binding_table *table, const uint64_t *key,
                                              uint32_t words, uint64_t *hash) {
    SILO_LOCK(&table->lock);
    PyObject *binding = silo_guard_find(&table->guard, key, words, hash);
    Py_XINCREF(binding);
    SILO_UNLOCK(&table->lock);
    return binding;
}

/* Adds or replaces the binding of a key, and takes references of its own. Returns -1 with an
 * exception set. */
int silo_binding_table_insert(struct silo_binding_table *table, const uint64_t *key, uint32_t words,
                              uint64_t hash, PyObject *binding, PyObject *keep);

/* Removes all entries. If this releases the last reference to a binding, any code may run. */
void silo_binding_table_clear(struct silo_binding_table *table);

/* Returns a list of all bindings, in no order; NULL with an exception set. */
PyObject *silo_binding_table_list(struct silo_binding_table *table);

int silo_binding_table_traverse(const struct silo_binding_table *fixed, visitproc visit, void *arg);

#endif
