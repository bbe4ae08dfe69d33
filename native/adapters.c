#include "adapters.h"

#include "flat.h"
#include "locks.h"
#include "names.h"
#include "torch_shim.h"

#include <stdlib.h>

struct silo_adapter_table *silo_adapters;
static silo_lock writing; /* held to change the table */

static PyObject *s_exchange, *s_dlpack, *s_data_ptr, *s_cuda_dict;
static PyObject *type_hook; /* owned; NULL: none */

/* A table with room for mask + 1 types; never freed. */
static struct silo_adapter_table *new_table(uint32_t mask) {
    struct silo_adapter_table *table =
        calloc(1, sizeof *table + ((size_t)mask + 1) * sizeof *table->entries);
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

/* Whether the type has the attribute; never leaves an exception. */
static bool has(PyTypeObject *type, PyObject *name) {
    PyObject *value = PyObject_GetAttr((PyObject *)type, name);
    if (value == NULL)
        PyErr_Clear();
    Py_XDECREF(value);
    return value != NULL;
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
    PyErr_Clear();
    return api;
}

/* numpy.generic and numbers of any library that are not arrays. */
static enum silo_adapter_kind scalar_kind(PyTypeObject *type) {
    PyObject *name = PyType_GetName(type);
    bool is_bool = name != NULL && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 ||
                                    PyUnicode_CompareWithASCIIString(name, "bool_") == 0);
    Py_XDECREF(name);
    PyErr_Clear();
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
    PyErr_Clear();
    return result;
}

/* Whether the type lives in a package. Never leaves an exception. */
static bool is_from(PyTypeObject *type, const char *package) {
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *name =
        module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    const size_t length = strlen(package);
    const bool result = name != NULL && strncmp(name, package, length) == 0 &&
                        (name[length] == '.' || name[length] == '\0');
    PyErr_Clear();
    Py_XDECREF(module);
    return result;
}

static enum silo_adapter_kind classify(PyTypeObject *type) {
    if (is_numpy_scalar(type))
        return scalar_kind(type);
    if (PyType_IsSubtype(type, &PyUnicode_Type))
        return SILO_ADAPT_NOTHING;
    /* It has a buffer that fails for memory of a GPU, and capsules that take ten times as long; jax
     * has the attribute too, and there it fails on the CPU. */
    if (is_from(type, "cupy") && has(type, s_cuda_dict))
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

/* The entry of a type, or the free one where it would stand. */
static struct silo_adapter *place(struct silo_adapter_table *table, const PyTypeObject *type) {
    uint32_t i = (uint32_t)((uintptr_t)type >> 5) & table->mask;
    while (table->entries[i].type != NULL && table->entries[i].type != type)
        i = (i + 1) & table->mask;
    return &table->entries[i];
}

/* A table twice as large. The old one is never freed: a call further up this or another thread's
 * stack may hold a pointer into it. Tables double, so all of them together are no larger than the
 * newest. */
static int grow(void) {
    struct silo_adapter_table *old = silo_adapters, *bigger = new_table(old->mask * 2 + 1);
    if (bigger == NULL)
        return -1;
    for (uint32_t i = 0; i <= old->mask; i++) {
        if (old->entries[i].type != NULL)
            *place(bigger, old->entries[i].type) = old->entries[i];
    }
    bigger->used = old->used;
    __atomic_store_n(&silo_adapters, bigger, __ATOMIC_RELEASE);
    return 0;
}

/* Add or replace; NULL with an exception set. Takes its own reference to the type. */
static const struct silo_adapter *insert(struct silo_adapter entry) {
    struct silo_adapter *slot = NULL;
    SILO_LOCK(&writing);
    if (2 * (silo_adapters->used + 1) <= silo_adapters->mask || grow() == 0) {
        slot = place(silo_adapters, entry.type);
        const bool is_new = slot->type == NULL;
        silo_adapters->used += is_new;
        slot->exchange = entry.exchange;
        slot->kind = entry.kind;
        slot->rounds = entry.rounds;
        /* Last: a reader that sees the type sees the rest. */
        __atomic_store_n(&slot->type, entry.type, __ATOMIC_RELEASE);
        if (is_new)
            Py_INCREF((PyObject *)entry.type);
    }
    SILO_UNLOCK(&writing);
    if (slot == NULL)
        PyErr_NoMemory();
    return slot;
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
    const struct silo_adapter *known = place(silo_adapters, type); /* the hook may have added it */
    if (known->type == type)
        return known;
    struct silo_adapter entry = {type, exchange_of(type), NULL, SILO_ADAPT_EXCHANGE, false};
    if (entry.exchange == NULL)
        entry.kind = classify(type);
    return insert(entry);
}

int silo_adapt_torch(PyTypeObject *type) {
    const struct silo_adapter entry = {type, exchange_of(type), NULL, SILO_ADAPT_TORCH, false};
    if (insert(entry) == NULL)
        return -1;
    /* The first type given is torch.Tensor itself. */
    if (silo_torch.tensor == NULL) {
        silo_torch.adapter = entry;
        silo_torch.tensor = type;
    }
    return 0;
}

int silo_adapt_descriptor(PyTypeObject *type, bool rounds) {
    const struct silo_adapter entry = {type, NULL, NULL, SILO_ADAPT_DESCRIPTOR, rounds};
    return insert(entry) ? 0 : -1;
}

int silo_adapter_set_stream(PyTypeObject *type, PyObject *stream) {
    if (silo_adapter_of(type) == NULL)
        return -1;
    Py_INCREF(stream);
    SILO_LOCK(&writing);
    struct silo_adapter *entry = place(silo_adapters, type);
    PyObject *old = entry->stream;
    entry->stream = stream;
    SILO_UNLOCK(&writing);
    Py_XDECREF(old);
    return 0;
}

void silo_unadapt_torch(void) {
    for (uint32_t i = 0; i <= silo_adapters->mask; i++) {
        struct silo_adapter *entry = &silo_adapters->entries[i];
        if (entry->type != NULL && entry->kind == SILO_ADAPT_TORCH)
            entry->kind = entry->exchange != NULL ? SILO_ADAPT_EXCHANGE : classify(entry->type);
    }
}
