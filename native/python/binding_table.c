#include "binding_table.h"

#include <stdlib.h>

static void release(void *binding, void *keep) {
    Py_DECREF((PyObject *)binding);
    Py_DECREF((PyObject *)keep);
}

int silo_binding_table_insert(struct silo_binding_table *table, const uint64_t *key, uint32_t words,
                              uint64_t hash, PyObject *binding, PyObject *keep) {
    struct silo_guard_entry *entry = silo_guard_entry_new(key, words, binding, keep);
    struct silo_guard_entry *replaced = NULL;
    struct silo_guard_table *full = NULL;
    if (entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF(binding);
    Py_INCREF(keep);
    SILO_LOCK(&table->lock);
    if (silo_guard_used(&table->guard) >= SILO_GUARD_LIMIT)
        full = silo_guard_take(&table->guard);
    const int result = silo_guard_insert(&table->guard, entry, hash, &replaced);
    silo_guard_free_older(&table->guard);
    SILO_UNLOCK(&table->lock);
    /* The table that reached its limit is freed after the unlock, because releasing a binding may
     * run code that launches again and takes the lock. */
    silo_guard_table_free(full, release);
    if (result != 0)
        replaced = entry;
    if (replaced != NULL) {
        release(replaced->binding, replaced->keep);
        free(replaced);
    }
    if (result != 0)
        PyErr_NoMemory();
    return result;
}

void silo_binding_table_clear(struct silo_binding_table *bindings) {
    SILO_LOCK(&bindings->lock);
    struct silo_guard_table *table = silo_guard_take(&bindings->guard);
    SILO_UNLOCK(&bindings->lock);
    silo_guard_table_free(table, release);
}

/* Puts a reference to each binding into a list of length `used`. Returns false if the number of
 * bindings is not `used`. */
static bool fill_list(struct silo_binding_table *bindings, PyObject *list, uint32_t used) {
    SILO_LOCK(&bindings->lock);
    const struct silo_guard_table *table = bindings->guard.table;
    const bool right = silo_guard_used(&bindings->guard) == used;
    Py_ssize_t count = 0;
    for (uint32_t i = 0; right && used != 0 && i <= table->mask; i++) {
        const struct silo_guard_entry *entry = table->slots[i].entry;
        if (entry != NULL)
            PyList_SetItem(list, count++, Py_NewRef((PyObject *)entry->binding));
    }
    SILO_UNLOCK(&bindings->lock);
    return right;
}

PyObject *silo_binding_table_list(struct silo_binding_table *table) {
    for (;;) {
        SILO_LOCK(&table->lock);
        const uint32_t used = silo_guard_used(&table->guard);
        SILO_UNLOCK(&table->lock);
        PyObject *list = PyList_New(used); /* may run the garbage collector, and with it any code */
        if (list == NULL || fill_list(table, list, used))
            return list;
        Py_DECREF(list);
    }
}

int silo_binding_table_traverse(const struct silo_binding_table *fixed, visitproc visit,
                                void *arg) {
    const struct silo_guard_table *table = fixed->guard.table;
    for (uint32_t i = 0; table != NULL && i <= table->mask; i++) {
        const struct silo_guard_entry *entry = table->slots[i].entry;
        if (entry != NULL) {
            Py_VISIT((PyObject *)entry->binding);
            Py_VISIT((PyObject *)entry->keep);
        }
    }
    return 0;
}
