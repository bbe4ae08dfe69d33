/* One table from Python types to the way their objects are read as arguments. */
#ifndef SILO_ADAPTERS_H
#define SILO_ADAPTERS_H

#include "dlpack.h"
#include "python.h"

enum silo_adapter_kind {
    SILO_ADAPT_NOTHING,   /* not an argument */
    SILO_ADAPT_TORCH,     /* exactly torch.Tensor or Parameter, through the shim */
    SILO_ADAPT_EXCHANGE,  /* DLPack C exchange API */
    SILO_ADAPT_BUFFER,    /* buffer protocol */
    SILO_ADAPT_DLPACK,    /* __dlpack__ capsules */
    SILO_ADAPT_DATA_PTR,  /* data_ptr() and dtype */
    SILO_ADAPT_CUDA_DICT, /* __cuda_array_interface__ */
    SILO_ADAPT_INT,       /* a number of another library: numpy.int32, ... */
    SILO_ADAPT_FLOAT,
    SILO_ADAPT_BOOL,
    SILO_ADAPT_DESCRIPTOR, /* a tensor descriptor: attributes of its own, a base array behind */
};

/* Entries are never removed and own a reference to their type. */
struct silo_adapter {
    PyTypeObject *type;
    const struct dl_exchange *exchange;
    PyObject *stream; /* owned callable: device index -> handle of the library's current stream */
    enum silo_adapter_kind kind;
    bool rounds; /* a descriptor with an attribute round_f32_to_tf32 */
};

int silo_adapters_init(void);

/* Called with a type the first time one of its objects is seen, before it is classified; borrowed
 * from `hook`, which is None or a callable. Lets the package connect a framework when it first
 * appears. */
void silo_set_type_hook(PyObject *hook);

/* Read objects of exactly this type through the torch shim; -1 with an exception set. */
int silo_adapt_torch(PyTypeObject *type);

/* Read objects of exactly this type as tensor descriptors; -1 with an exception set. */
int silo_adapt_descriptor(PyTypeObject *type, bool rounds);

/* Where the current stream of a library is asked whose arrays have no DLPack exchange API: a
 * callable from a device index to a handle. -1 with an exception set. */
int silo_adapter_set_stream(PyTypeObject *type, PyObject *stream);

/* Forget that types are read through the shim. */
void silo_unadapt_torch(void);

/* Classify a type not seen before. NULL with an exception set. */
const struct silo_adapter *silo_adapter_add(PyTypeObject *type);

/* Read without a lock. Entries appear, change and never go; a table that is full is replaced. */
struct silo_adapter_table {
    uint32_t mask;
    uint32_t used;
    struct silo_adapter entries[]; /* open addressing */
};

extern struct silo_adapter_table *silo_adapters;

SILO_INLINE const struct silo_adapter *silo_adapter_of(PyTypeObject *type) {
    const struct silo_adapter_table *table = __atomic_load_n(&silo_adapters, __ATOMIC_ACQUIRE);
    uint32_t i = (uint32_t)((uintptr_t)type >> 5) & table->mask;
    for (;;) {
        const struct silo_adapter *entry = &table->entries[i];
        const PyTypeObject *known = __atomic_load_n(&entry->type, __ATOMIC_ACQUIRE);
        if (SILO_LIKELY(known == type))
            return entry;
        if (known == NULL)
            return silo_adapter_add(type);
        i = (i + 1) & table->mask;
    }
}

#endif
