/* One table from Python types to the way their objects are read as arguments. */
#ifndef SILO_ADAPTERS_H
#define SILO_ADAPTERS_H

#include "adapter.h"

int silo_adapters_init(void);

/* Called with a type the first time one of its objects is seen, before it is classified; borrowed
 * from `hook`, which is None or a callable. Lets the package connect a framework when it first
 * appears. */
void silo_set_type_hook(PyObject *hook);

/* Read objects of exactly this type through the torch shim; -1 with an exception set. */
int silo_adapt_torch(PyTypeObject *type);

/* Read objects of exactly this type as tensor descriptors; -1 with an exception set. */
int silo_adapt_descriptor(PyTypeObject *type, bool rounds, bool laid_out);

/* Returns the current stream of a library whose arrays lack the DLPack exchange API: a callable
 * from a device index to a handle. -1 with an exception set. */
int silo_adapter_set_stream(PyTypeObject *type, PyObject *stream);

/* Reads arrays without an address (jax's on a TPU): a callable from an array to (DLPack device
 * type, device index, dtype, read-only), or None if it has an address. -1 with an exception set. */
int silo_adapter_set_reader(PyTypeObject *type, PyObject *reader);

/* Whether the type lives in a package. Never leaves an exception. */
bool silo_is_from(PyTypeObject *type, const char *package);

/* Forget that types are read through the shim. */
void silo_unadapt_torch(void);

/* Classify a type not seen before. NULL with an exception set. */
const struct silo_adapter *silo_adapter_add(PyTypeObject *type);

struct silo_adapter_slot {
    PyTypeObject *type; /* NULL: free */
    struct silo_adapter *adapter;
};

/* Read without a lock. Slots are taken and never given back: a table that is full is replaced by
 * one without entries of classes that are gone. */
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

/* Valid for as long as the caller has an object of the type. */
SILO_INLINE const struct silo_adapter *silo_adapter_of(PyTypeObject *type) {
    const struct silo_adapter_table *table = __atomic_load_n(&silo_adapters, __ATOMIC_ACQUIRE);
    uint32_t i = (uint32_t)((uintptr_t)type >> 5) & table->mask;
    for (;;) {
        const struct silo_adapter_slot *slot = &table->slots[i];
        const PyTypeObject *known = __atomic_load_n(&slot->type, __ATOMIC_ACQUIRE);
        if (SILO_LIKELY(known == type)) {
            const struct silo_adapter *adapter = __atomic_load_n(&slot->adapter, __ATOMIC_ACQUIRE);
            return SILO_LIKELY(silo_adapter_lives(adapter)) ? adapter : silo_adapter_add(type);
        }
        if (known == NULL)
            return silo_adapter_add(type);
        i = (i + 1) & table->mask;
    }
}

#endif
