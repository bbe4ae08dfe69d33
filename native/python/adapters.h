/* A table from Python types to adapters, which say how objects of a type are read as arguments. */
#ifndef SILO_ADAPTERS_H
#define SILO_ADAPTERS_H

#include "adapter.h"

int silo_adapters_init(void);

/* Sets a hook that is called with each new type before the type is classified, so that the package
 * can set up support for a framework when the framework first appears. `hook` is a callable or
 * None; the function takes a reference of its own. */
void silo_set_type_hook(PyObject *hook);

/* Makes the torch shim read objects of exactly this type; -1 with an exception set. */
int silo_adapt_torch(PyTypeObject *type);

/* Makes objects of exactly this type be read as tensor descriptors; -1 with an exception set. */
int silo_adapt_descriptor(PyTypeObject *type, bool rounds, bool laid_out);

/* Sets a type's source of current streams, for libraries whose arrays lack the DLPack exchange API:
 * a callable that maps a device index to a stream handle. Returns -1 with an exception set. */
int silo_adapter_set_stream(PyTypeObject *type, PyObject *stream);

/* Sets a type's reader, for arrays that may lack an address (jax's on a TPU): a callable that maps
 * an array to (DLPack device type, device index, dtype, read-only), or to None if the array has an
 * address. Returns -1 with an exception set. */
int silo_adapter_set_reader(PyTypeObject *type, PyObject *reader);

/* Returns whether a type is defined in a package or its modules; never leaves an exception. */
bool silo_is_from(PyTypeObject *type, const char *package);

/* From now on no type is read through the torch shim. */
void silo_unadapt_torch(void);

/* Classifies a type that the table lacks. Returns its adapter, or NULL with an exception set. */
const struct silo_adapter *silo_adapter_add(PyTypeObject *type);

struct silo_adapter_slot {
    PyTypeObject *type; /* NULL if the slot is free */
    struct silo_adapter *adapter;
};

/* A hash table that is read without a lock. A slot in use stays in use; a full table is replaced by
 * a new one, which leaves out classes that are gone. */
struct silo_adapter_table {
    uint32_t mask;
    uint32_t used;
    struct silo_adapter_slot slots[]; /* open addressing */
};

extern struct silo_adapter_table *silo_adapters;

SILO_INLINE bool silo_adapter_lives(const struct silo_adapter *adapter) {
    if (adapter->weak == NULL)
        return true;
#ifdef Py_GIL_DISABLED
    PyObject *type = NULL;
    const bool lives = PyWeakref_GetRef(adapter->weak, &type) == 1;
    Py_XDECREF(type);
    return lives;
#else
    return PyWeakref_GetObject(adapter->weak) != Py_None;
#endif
}

/* Returns the adapter of a type, valid as long as the caller holds an object of the type. */
SILO_INLINE const struct silo_adapter *silo_adapter_of(PyTypeObject *type) {
    const struct silo_adapter_table *table = __atomic_load_n(&silo_adapters, __ATOMIC_ACQUIRE);
    uint32_t i = (uint32_t)((uintptr_t)type >> 5) & table->mask;
    for (;;) {
        const struct silo_adapter_slot *slot = &table->slots[i];
        const PyTypeObject *cached_type = __atomic_load_n(&slot->type, __ATOMIC_ACQUIRE);
        if (SILO_LIKELY(cached_type == type)) {
            const struct silo_adapter *adapter = __atomic_load_n(&slot->adapter, __ATOMIC_ACQUIRE);
            return SILO_LIKELY(silo_adapter_lives(adapter)) ? adapter : silo_adapter_add(type);
        }
        if (cached_type == NULL)
            return silo_adapter_add(type);
        i = (i + 1) & table->mask;
    }
}

#endif
