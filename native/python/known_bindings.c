#include "known_bindings.h"

#include <stdlib.h>

static struct silo_entry *place(struct silo_entry *entries, uint32_t mask,
                                const struct silo_entry *wanted) {
    uint32_t i = (uint32_t)(wanted->hash >> 20) & mask;
    while (entries[i].binding != NULL &&
           !(entries[i].hash == wanted->hash &&
             silo_guard_equal(&entries[i], wanted->key, wanted->words)))
        i = (i + 1) & mask;
    return &entries[i];
}

static int grow(struct silo_guard *guard) {
    uint32_t mask = guard->entries ? guard->mask * 2 + 1 : 7;
    struct silo_entry *bigger =
        calloc((size_t)mask + 1, sizeof *bigger); /* owned by the guard below */
    if (bigger == NULL)
        return -1;
    for (uint32_t i = 0; guard->entries != NULL && i <= guard->mask; i++) {
        if (guard->entries[i].binding != NULL)
            *place(bigger, mask, &guard->entries[i]) = guard->entries[i];
    }
    free(guard->entries);
    guard->entries = bigger;
    guard->last = NULL;
    guard->mask = mask;
    return 0;
}

int silo_guard_insert(struct silo_guard *guard, const uint64_t *key, uint32_t words, uint64_t hash,
                      PyObject *binding, PyObject *keep) {
    if (guard->used >= SILO_GUARD_LIMIT)
        silo_guard_clear(guard);
    struct silo_entry entry = {.hash = hash, .words = words, .binding = binding, .keep = keep};
    struct silo_entry old = {0};
    entry.key = malloc(words * sizeof *key + 1); /* owned by the table below */
    if (entry.key != NULL) {
        memcpy(entry.key, key, words * sizeof *key);
        SILO_LOCK(&guard->lock);
        const bool full = guard->entries == NULL || 2 * (guard->used + 1) > guard->mask;
        if (!full || grow(guard) == 0) {
            Py_INCREF(binding);
            Py_INCREF(keep);
            struct silo_entry *slot = place(guard->entries, guard->mask, &entry);
            old = *slot;
            guard->used += old.binding == NULL;
            *slot = entry;
            entry.key = NULL;
        }
        SILO_UNLOCK(&guard->lock);
        if (entry.key != NULL) {
            free(entry.key);
            PyErr_NoMemory();
            return -1;
        }
    } else {
        PyErr_NoMemory();
        return -1;
    }
    free(old.key);
    Py_XDECREF(old.binding);
    Py_XDECREF(old.keep);
    return 0;
}

void silo_guard_clear(struct silo_guard *guard) {
    /* Take the table off first: releasing a binding may run code that launches again. */
    SILO_LOCK(&guard->lock);
    const struct silo_guard old = *guard;
    guard->entries = guard->last = NULL;
    guard->mask = guard->used = 0;
    SILO_UNLOCK(&guard->lock);
    for (uint32_t i = 0; old.entries != NULL && i <= old.mask; i++) {
        free(old.entries[i].key);
        Py_XDECREF(old.entries[i].binding);
        Py_XDECREF(old.entries[i].keep);
    }
    free(old.entries);
}

int silo_guard_traverse(const struct silo_guard *guard, visitproc visit, void *arg) {
    for (uint32_t i = 0; guard->entries != NULL && i <= guard->mask; i++) {
        Py_VISIT(guard->entries[i].binding);
        Py_VISIT(guard->entries[i].keep);
    }
    return 0;
}
