#include "triton_decision.h"

#include "canonical_names.h"
#include "locks.h"
#include "names.h"
#include "torch_shim.h"

#define SCALAR_TYPES 64    /* number of torch's scalar types */
#define CACHED_KEYS 64     /* a power of two */
#define MOST_SEARCHED 1024 /* caches with more members are not searched */

static PyObject *dtype_texts[SCALAR_TYPES]; /* owned: str(dtype), by torch's number of the dtype */
static PyObject *s_dtype;

/* The last key that was looked up in a cache. The next call usually has an equal key: then no tuple
 * is made, and the look-up with the cache's own tuple succeeds by comparing addresses. The config
 * itself is read from the cache each time. */
struct cached_key {
    const void *cache; /* compared only, never read */
    PyObject *key;     /* owned tuple of int, bool, str and None, or NULL */
    PyObject *stored;  /* owned: the equal tuple in the cache; NULL if it was not searched for */
};
static struct cached_key cached_keys[CACHED_KEYS];
static silo_lock cached_lock;

/* The parts of a key; owned. */
struct parts {
    PyObject *items[2 * SILO_TUNED_VALUES];
    Py_ssize_t count;
};

/* Returns str(value.dtype) (a new reference). Returns NULL without an exception if the value lacks
 * the attribute. */
static PyObject *dtype_text(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
        type == &PyUnicode_Type || value == Py_None || type == &PyTuple_Type)
        return NULL;
    int32_t number = SCALAR_TYPES;
    if (SILO_LIKELY(type == silo_torch.tensor)) {
        if (silo_torch_read_dtype(silo_torch_handle(value), &number) != 0 || number < 0)
            number = SCALAR_TYPES;
        if (SILO_LIKELY(number < SCALAR_TYPES && dtype_texts[number] != NULL))
            return Py_NewRef(dtype_texts[number]);
    }
    PyObject *dtype = PyObject_GetAttr(value, s_dtype);
    if (dtype == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        return NULL;
    }
    PyObject *text = PyObject_Str(dtype);
    Py_DECREF(dtype);
    if (text != NULL && number < SCALAR_TYPES && dtype_texts[number] == NULL)
        dtype_texts[number] = Py_NewRef(text);
    return text;
}

/* Returns the index of a name among the argument names, or -1. All names are interned, so they are
 * compared by address. */
SILO_INLINE Py_ssize_t index_of(PyObject *const *arg_names, Py_ssize_t count, PyObject *name) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (arg_names[i] == name)
            return i;
    }
    return -1;
}

/* Collects the parts of the key that Triton makes for a call. Returns -1, perhaps with an exception
 * set, if Triton must make the key itself. */
static int read_parts(struct parts *parts, PyObject *arg_names, PyObject *keys,
                      PyObject *const *arguments, Py_ssize_t positional, PyObject *const *names,
                      Py_ssize_t named) {
    const Py_ssize_t count = PyList_Size(arg_names), key_count = PyList_Size(keys);
    PyObject *by_name[SILO_TUNED_VALUES], *own_names[SILO_TUNED_VALUES];
    PyObject *in_order[SILO_TUNED_VALUES];
    Py_ssize_t passed = 0;
    parts->count = 0;
    if (count > SILO_TUNED_VALUES || positional > count || key_count > SILO_TUNED_VALUES)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        own_names[i] = silo_canonical_name(PyList_GetItem(arg_names, i));
    for (Py_ssize_t i = 0; i < positional; i++)
        in_order[passed++] = by_name[i] = arguments[i];
    for (Py_ssize_t i = positional; i < count; i++)
        by_name[i] = NULL;
    for (Py_ssize_t i = 0; i < named; i++) {
        const Py_ssize_t index = index_of(own_names, count, names[i]);
        if (index < 0)
            continue;
        if (by_name[index] != NULL)
            return -1; /* the argument is given twice */
        in_order[passed++] = by_name[index] = arguments[positional + i];
    }
    for (Py_ssize_t i = 0; i < key_count; i++) {
        const Py_ssize_t index =
            index_of(own_names, count, silo_canonical_name(PyList_GetItem(keys, i)));
        if (index >= 0 && by_name[index] != NULL)
            parts->items[parts->count++] = Py_NewRef(by_name[index]);
    }
    for (Py_ssize_t i = 0; i < passed; i++) {
        PyObject *text = dtype_text(in_order[i]);
        if (text != NULL)
            parts->items[parts->count++] = text;
        else if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Returns whether two values are equal as parts of a key. It runs no Python code, and returns false
 * for values whose comparison would run some. */
static bool is_same(PyObject *left, PyObject *other) {
    if (left == other)
        return true;
    if (PyLong_CheckExact(left) && PyLong_CheckExact(other)) {
        int first_overflow, second_overflow;
        const long long first = PyLong_AsLongLongAndOverflow(left, &first_overflow);
        const long long second = PyLong_AsLongLongAndOverflow(other, &second_overflow);
        return first == second && first_overflow == 0 && second_overflow == 0;
    }
    return PyUnicode_CheckExact(left) && PyUnicode_CheckExact(other) &&
           PyUnicode_Compare(left, other) == 0;
}

static bool is_plain(PyObject *value) {
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || value == Py_None ||
           PyBool_Check(value);
}

static bool equals(PyObject *key, PyObject *const *items, Py_ssize_t count) {
    if (!PyTuple_CheckExact(key) || PyTuple_Size(key) != count)
        return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_same(PyTuple_GetItem(key, i), items[i]))
            return false;
    }
    return true;
}

/* Returns the cache's own tuple with these parts (a new reference), or NULL if none was found. */
static SILO_NOINLINE PyObject *stored_key(PyObject *cache, const struct parts *parts) {
    PyObject *key, *config;
    Py_ssize_t position = 0;
    if (PyDict_Size(cache) > MOST_SEARCHED)
        return NULL;
    while (PyDict_Next(cache, &position, &key, &config)) {
        if (equals(key, parts->items, parts->count))
            return Py_NewRef(key);
    }
    return NULL;
}

/* Keeps a key for the next look-up, unless a part is not an int, a bool, a str or None: the key
 * would keep that object alive. */
static void keep(struct cached_key *slot, const void *cache, const struct parts *parts,
                 PyObject *key, PyObject *stored) {
    for (Py_ssize_t i = 0; i < parts->count; i++) {
        if (!is_plain(parts->items[i]))
            return;
    }
    SILO_LOCK(&cached_lock);
    const struct cached_key old = *slot;
    *slot = (struct cached_key){cache, Py_NewRef(key), Py_XNewRef(stored)};
    SILO_UNLOCK(&cached_lock);
    Py_XDECREF(old.key);
    Py_XDECREF(old.stored);
}

/* Returns the cache's config for a key of these parts, borrowed; NULL, perhaps with an exception
 * set. */
static PyObject *look_up(PyObject *cache, const struct parts *parts) {
    struct cached_key *slot = &cached_keys[(size_t)(uintptr_t)cache >> 4 & (CACHED_KEYS - 1)];
    SILO_LOCK(&cached_lock);
    struct cached_key last = *slot;
    const bool again =
        last.cache == cache && last.key != NULL && equals(last.key, parts->items, parts->count);
    PyObject *key = !again ? NULL : Py_NewRef(last.stored != NULL ? last.stored : last.key);
    const bool search = again && last.stored == NULL;
    SILO_UNLOCK(&cached_lock);
    if (search) {
        PyObject *stored = stored_key(cache, parts);
        keep(slot, cache, parts, key, stored != NULL ? stored : key);
        Py_XDECREF(stored);
    } else if (!again) {
        key = PyTuple_New(parts->count);
        for (Py_ssize_t i = 0; key != NULL && i < parts->count; i++)
            PyTuple_SetItem(key, i, Py_NewRef(parts->items[i]));
        if (key != NULL)
            keep(slot, cache, parts, key, NULL);
    }
    PyObject *config = key != NULL ? PyDict_GetItemWithError(cache, key) : NULL;
    Py_XDECREF(key);
    return config;
}

PyObject *silo_triton_decision(PyObject *arg_names, PyObject *keys, PyObject *cache,
                               PyObject *const *arguments, Py_ssize_t positional,
                               PyObject *const *names, Py_ssize_t named) {
    struct parts parts;
    PyObject *config = NULL;
    if (read_parts(&parts, arg_names, keys, arguments, positional, names, named) == 0)
        config = look_up(cache, &parts);
    for (Py_ssize_t i = 0; i < parts.count; i++)
        Py_DECREF(parts.items[i]);
    return config;
}

int silo_triton_decision_init(void) {
    static const struct silo_name names[] = {{&s_dtype, "dtype"}};
    return silo_intern(names, sizeof names / sizeof *names);
}
