/* The bindings of a launcher: the guard table with references to Python's objects.
 *
 * Threads: no Python code runs between a look-up and taking a reference to its answer, so the GIL
 * is enough; a build without it holds the lock there and where the table changes. */
#ifndef SILO_KNOWN_BINDINGS_H
#define SILO_KNOWN_BINDINGS_H

#include "guard.h"
#include "locks.h"
#include "python.h"

/* An entry's `binding` is an owned Binding; its `keep` a tuple, owned: objects whose identity is in
 * the key. */
struct silo_known {
    struct silo_guard guard;
    silo_lock lock;
};

/* The binding (a new reference), or NULL without an exception; then `*hash` is the key's. */
SILO_INLINE PyObject *silo_known_find(struct silo_known *known, const uint64_t *key, uint32_t words,
                                      uint64_t *hash) {
    SILO_LOCK(&known->lock);
    PyObject *found = silo_guard_find(&known->guard, key, words, hash);
    Py_XINCREF(found);
    SILO_UNLOCK(&known->lock);
    return found;
}

/* Add or replace; takes its own references. -1 with an exception set. */
int silo_known_insert(struct silo_known *known, const uint64_t *key, uint32_t words, uint64_t hash,
                      PyObject *binding, PyObject *keep);

/* Empty it. May run arbitrary code through the last references to bindings. */
void silo_known_clear(struct silo_known *known);

/* A list of all bindings, in no order; NULL with an exception set. */
PyObject *silo_known_list(struct silo_known *known);

int silo_known_traverse(const struct silo_known *known, visitproc visit, void *arg);

#endif
