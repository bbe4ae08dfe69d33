#include "adapters.h"

#include "errors.h"
#include "flat.h"
#include "locks.h"
#include "names.h"
#include "torch_shim.h"

#include <stdlib.h>

struct silo_adapter_table *silo_adapters;
static silo_lock writing; /* the lock to hold when the table changes */

static PyObject *s_exchange, *s_dlpack, *s_data_ptr, *s_cuda_dict, *s_is_neg;
static PyObject *type_hook; /* owned; NULL if no hook is set */

/* A table with room for mask + 1 types. */
static struct silo_adapter_table *new_table(uint32_t mask) {
    struct silo_adapter_table *table =
        calloc(1, sizeof *table + ((size_t)mask + 1) * sizeof *table->slots);
    if (table != NULL)
        table->mask = mask;
    return table;
}

int silo_adapters_init(void) {
    static const struct silo_name names[] = {
        {&s_exchange, "__dlpack_c_exchange_api__"},
        {&s_dlpack, "__dlpack__"},
        {&s_data_ptr, "data_ptr"},
        {&s_cuda_dict, "__cuda_array_interface__"},
        {&s_is_neg, "is_neg"},
    };
    if (silo_intern(names, sizeof names / sizeof *names) != 0)
        return -1;
    silo_adapters = new_table(63);
    if (silo_adapters == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void silo_set_type_hook(PyObject *hook) {
    PyObject *old = type_hook;
    Py_INCREF(hook);
    type_hook = hook == Py_None ? NULL : hook;
    if (hook == Py_None)
        Py_DECREF(hook);
    Py_XDECREF(old);
}

/* Returns whether the type has the attribute; clears any exception of the look-up. */
static bool has(PyTypeObject *type, PyObject *name) {
    PyObject *value = PyObject_GetAttr((PyObject *)type, name);
    if (value == NULL)
        silo_forget_error();
    Py_XDECREF(value);
    return value != NULL;
}

/* Returns whether reading an array of this class may run Python code of the class. */
static bool calls_methods(PyTypeObject *type, enum silo_adapter_kind kind) {
    if (kind != SILO_ADAPT_BUFFER)
        return kind == SILO_ADAPT_DLPACK || kind == SILO_ADAPT_DATA_PTR ||
               kind == SILO_ADAPT_CUDA_DICT;
    /* Since Python 3.12 a class may define __buffer__ in Python. In a type written in C, the
     * attribute __buffer__ is a slot wrapper. */
    PyObject *method = PyObject_GetAttrString((PyObject *)type, "__buffer__");
    const bool is_method = method != NULL && Py_TYPE(method) != &PyWrapperDescr_Type;
    silo_forget_error();
    Py_XDECREF(method);
    return is_method;
}

static const struct dl_exchange *exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, s_exchange);
    const struct dl_exchange *api = NULL;
    if (capsule != NULL) {
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        while (api != NULL && api->major != 1)
            api = api->previous;
        if (api != NULL && api->tensor_from_object == NULL)
            api = NULL;
        Py_DECREF(capsule);
    }
    silo_forget_error();
    return api;
}

/* Returns the kind of adapter for numpy.generic's subclasses and for number types of any library:
 * SILO_ADAPT_BOOL, _INT or _FLOAT, else SILO_ADAPT_NOTHING. */
static enum silo_adapter_kind scalar_kind(PyTypeObject *type) {
    PyObject *name = PyType_GetName(type);
    bool is_bool = name != NULL && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 ||
                                    PyUnicode_CompareWithASCIIString(name, "bool_") == 0);
    Py_XDECREF(name);
    silo_forget_error();
    if (is_bool)
        return SILO_ADAPT_BOOL;
    if (PyType_GetSlot(type, Py_nb_index) != NULL)
        return SILO_ADAPT_INT;
    if (PyType_GetSlot(type, Py_nb_float) != NULL)
        return SILO_ADAPT_FLOAT;
    return SILO_ADAPT_NOTHING;
}

static bool is_numpy_scalar(PyTypeObject *type) {
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *numpy = modules ? PyDict_GetItemString(modules, "numpy") : NULL;
    PyObject *generic = numpy ? PyObject_GetAttrString(numpy, "generic") : NULL;
    bool result =
        generic != NULL && PyType_Check(generic) && PyType_IsSubtype(type, (PyTypeObject *)generic);
    Py_XDECREF(generic);
    silo_forget_error();
    return result;
}

bool silo_is_from(PyTypeObject *type, const char *package) {
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *name =
        module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    const size_t length = strlen(package);
    const bool result = name != NULL && strncmp(name, package, length) == 0 &&
                        (name[length] == '.' || name[length] == '\0');
    silo_forget_error();
    Py_XDECREF(module);
    return result;
}

static enum silo_adapter_kind classify(PyTypeObject *type) {
    if (is_numpy_scalar(type))
        return scalar_kind(type);
    if (PyType_IsSubtype(type, &PyUnicode_Type))
        return SILO_ADAPT_NOTHING;
    /* CuPy's buffer protocol fails for GPU memory, and a DLPack capsule of CuPy takes ten times as
     * long as the attribute `__cuda_array_interface__`. Arrays of other libraries are read by this
     * attribute only as a last resort (below): jax's arrays have it too, but on the CPU reading it
     * fails. */
    if (silo_is_from(type, "cupy") && has(type, s_cuda_dict))
        return SILO_ADAPT_CUDA_DICT;
    if (PyType_GetSlot(type, Py_bf_getbuffer) != NULL)
        return SILO_ADAPT_BUFFER;
    if (has(type, s_dlpack))
        return SILO_ADAPT_DLPACK;
    if (has(type, s_data_ptr))
        return SILO_ADAPT_DATA_PTR;
    if (has(type, s_cuda_dict))
        return SILO_ADAPT_CUDA_DICT;
    return scalar_kind(type);
}

/* Returns the slot of a type, or the free slot that the type would get. */
static struct silo_adapter_slot *place(struct silo_adapter_table *table, const PyTypeObject *type) {
    uint32_t i = (uint32_t)((uintptr_t)type >> 5) & table->mask;
    while (table->slots[i].type != NULL && table->slots[i].type != type)
        i = (i + 1) & table->mask;
    return &table->slots[i];
}

/* Returns the adapter of a type, or NULL if the table lacks the type or the class is gone. */
static struct silo_adapter *find_adapter(const PyTypeObject *type) {
    const struct silo_adapter_slot *slot = place(silo_adapters, type);
    return slot->type == type && silo_adapter_lives(slot->adapter) ? slot->adapter : NULL;
}

/* The adapters that were retired last. They are freed late, because a call further up the stack may
 * still be reading one: the call's argument may have changed its class while the call ran. */
static struct {
    struct silo_adapter *adapter[64];
    uint32_t next;
} gone;

/* Delays the freeing of an adapter: puts it into the ring `gone`, and adds the oldest adapter of
 * the full ring to the list `out`, which the caller frees after it releases the lock. In
 * free-threaded Python nothing is freed, because another thread may be reading the adapter. */
static void retire(struct silo_adapter *adapter, struct silo_adapter **out) {
#ifdef Py_GIL_DISABLED
    (void)adapter, (void)out, (void)gone;
#else
    struct silo_adapter *last = gone.adapter[gone.next];
    gone.adapter[gone.next] = adapter;
    gone.next = (gone.next + 1) % (sizeof gone.adapter / sizeof *gone.adapter);
    if (last != NULL) {
        last->next = *out;
        *out = last;
    }
#endif
}

/* Frees the adapters of a list; this may run Python code. */
static void free_adapters(struct silo_adapter *list) {
    while (list != NULL) {
        struct silo_adapter *next = list->next;
        Py_XDECREF(list->weak);
        Py_XDECREF(list->stream);
        Py_XDECREF(list->reader);
        free(list);
        list = next;
    }
}

/* Replaces the table by a new one, without the classes that are gone. The new table is larger if
 * the living classes would fill half of the old one. The caller holds the lock. Returns -1 if
 * memory runs out. */
static int renew(struct silo_adapter **out) {
    struct silo_adapter_table *old = silo_adapters;
    uint32_t living = 0;
    for (uint32_t i = 0; i <= old->mask; i++)
        living += old->slots[i].type != NULL && silo_adapter_lives(old->slots[i].adapter);
    const uint32_t mask = 4 * (living + 1) > old->mask ? old->mask * 2 + 1 : old->mask;
    struct silo_adapter_table *table = new_table(mask);
    if (table == NULL)
        return -1;
    for (uint32_t i = 0; i <= old->mask; i++) {
        const struct silo_adapter_slot *slot = &old->slots[i];
        if (slot->type == NULL)
            continue;
        if (silo_adapter_lives(slot->adapter)) {
            *place(table, slot->type) = *slot;
            table->used++;
        } else {
            retire(slot->adapter, out);
        }
    }
    __atomic_store_n(&silo_adapters, table, __ATOMIC_RELEASE);
#ifndef Py_GIL_DISABLED
    free(old); /* under the GIL no thread is reading the old table; the adapters themselves are not
                  moved or freed, because callers may hold them */
#endif
    return 0;
}

/* Puts `adapter` into the table, which then owns it. Returns the type's adapter: `adapter` itself,
 * or an older adapter of the type, which gets the new contents. Returns NULL if memory runs out.
 * The caller holds the lock and frees the list `out` later. */
static struct silo_adapter *put(struct silo_adapter *adapter, struct silo_adapter **out) {
    if (2 * (silo_adapters->used + 1) > silo_adapters->mask && renew(out) != 0) {
        adapter->next = *out;
        *out = adapter;
        return NULL;
    }
    struct silo_adapter_slot *slot = place(silo_adapters, adapter->type);
    struct silo_adapter *old = slot->type != NULL ? slot->adapter : NULL;
    if (old != NULL && silo_adapter_lives(old)) {
        /* The old adapter is changed in place, because a call further up the stack may be reading
         * it. */
        old->exchange = adapter->exchange;
        old->kind = adapter->kind;
        old->calls = adapter->calls;
        old->rounds = adapter->rounds;
        old->laid_out = adapter->laid_out;
        adapter->next = *out;
        *out = adapter;
        return old;
    }
    __atomic_store_n(&slot->adapter, adapter, __ATOMIC_RELEASE);
    /* The type is stored last, so that a reader that sees the type also sees the adapter. */
    __atomic_store_n(&slot->type, adapter->type, __ATOMIC_RELEASE);
    if (old != NULL)
        retire(old, out);
    else
        silo_adapters->used++;
    return adapter;
}

/* Adds the adapter of a type, or replaces its contents. Returns NULL with an exception set. */
static const struct silo_adapter *insert(const struct silo_adapter *entry) {
    /* This function owns both pointers; `put` then moves `adapter` into the table. */
    struct silo_adapter *adapter = malloc(sizeof *adapter), *out = NULL;
    if (adapter == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *adapter = *entry;
    /* Only heap types can be freed; other types need no weak reference. */
    if (PyType_GetFlags(entry->type) & Py_TPFLAGS_HEAPTYPE) {
        adapter->weak = PyWeakref_NewRef((PyObject *)entry->type, NULL);
        if (adapter->weak == NULL) {
            free(adapter);
            return NULL;
        }
    }
    SILO_LOCK(&writing);
    const struct silo_adapter *added = put(adapter, &out);
    SILO_UNLOCK(&writing);
    free_adapters(out);
    if (added == NULL)
        PyErr_NoMemory();
    return added;
}

const struct silo_adapter *silo_adapter_add(PyTypeObject *type) {
    if (type_hook != NULL) {
        PyObject *hook = type_hook;
        Py_INCREF(hook);
        PyObject *result = silo_call_one(hook, (PyObject *)type);
        Py_DECREF(hook);
        if (result == NULL)
            return NULL;
        Py_DECREF(result);
    }
    const struct silo_adapter *existing = find_adapter(type); /* the hook may have added the type */
    if (existing != NULL)
        return existing;
    struct silo_adapter entry = {.type = type, .kind = SILO_ADAPT_EXCHANGE};
    entry.exchange = exchange_of(type);
    if (entry.exchange == NULL)
        entry.kind = classify(type);
    entry.calls = calls_methods(type, entry.kind);
    entry.negates = has(type, s_is_neg);
    return insert(&entry);
}

int silo_adapt_torch(PyTypeObject *type) {
    const struct silo_adapter entry = {.type = type,
                                       .exchange = exchange_of(type),
                                       .kind = SILO_ADAPT_TORCH,
                                       .negates = has(type, s_is_neg)};
    if (insert(&entry) == NULL)
        return -1;
    /* The first type that is registered is torch.Tensor itself. */
    if (silo_torch.tensor == NULL) {
        /* This reference is never released: the shim compares types by address, and a new type may
         * get the address of a freed one. */
        Py_INCREF((PyObject *)type);
        silo_torch.adapter = entry;
        silo_torch.tensor = type;
    }
    return 0;
}

int silo_adapt_descriptor(PyTypeObject *type, bool rounds, bool laid_out) {
    const struct silo_adapter entry = {
        .type = type, .kind = SILO_ADAPT_DESCRIPTOR, .rounds = rounds, .laid_out = laid_out};
    return insert(&entry) ? 0 : -1;
}

/* Stores `callable` for a type: as its reader of arrays if `reads` is true, else as its source of
 * current streams. */
static int set_callable(PyTypeObject *type, PyObject *callable, bool reads) {
    if (silo_adapter_of(type) == NULL)
        return -1;
    Py_INCREF(callable);
    SILO_LOCK(&writing);
    struct silo_adapter *entry = place(silo_adapters, type)->adapter;
    PyObject **member = reads ? &entry->reader : &entry->stream;
    PyObject *old = *member;
    *member = callable;
    SILO_UNLOCK(&writing);
    Py_XDECREF(old);
    return 0;
}

int silo_adapter_set_stream(PyTypeObject *type, PyObject *stream) {
    return set_callable(type, stream, false);
}

int silo_adapter_set_reader(PyTypeObject *type, PyObject *reader) {
    return set_callable(type, reader, true);
}

void silo_unadapt_torch(void) {
    for (uint32_t i = 0; i <= silo_adapters->mask; i++) {
        struct silo_adapter *entry = silo_adapters->slots[i].adapter;
        if (entry != NULL && silo_adapter_lives(entry) && entry->kind == SILO_ADAPT_TORCH)
            entry->kind = entry->exchange != NULL ? SILO_ADAPT_EXCHANGE : classify(entry->type);
    }
}
