#include "constants.h"

#include "errors.h"
#include "guard.h"
#include "stand_in.h"

/* Returns a dictionary key for a constexpr value (new reference). Equal tuples have equal keys, but
 * 1, True and 1.0 have three different ones. */
static PyObject *frozen(PyObject *object) {
    if (PyTuple_CheckExact(object)) {
        Py_ssize_t size = PyTuple_Size(object);
        PyObject *copy = PyTuple_New(size);
        for (Py_ssize_t i = 0; copy != NULL && i < size; i++) {
            PyObject *item = frozen(PyTuple_GetItem(object, i));
            if (item == NULL || PyTuple_SetItem(copy, i, item) != 0)
                Py_CLEAR(copy);
        }
        return copy;
    }
    if (PyFloat_CheckExact(object)) {
        /* The key has the bits of the float, because the floats -0.0 and 0.0 would be equal keys.
         */
        const double value = PyFloat_AsDouble(object);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return Py_BuildValue("(OK)", (PyObject *)&PyFloat_Type, (unsigned long long)bits);
    }
    return PyTuple_Pack(2, (PyObject *)Py_TYPE(object), object);
}

/* Returns a key for a dictionary: (dict, (key, value), ...), with each item frozen. Dictionaries
 * have equal keys if their items are equal and in the same order. */
static PyObject *frozen_dict(PyObject *object) {
    PyObject *items = PyDict_Items(object);
    const Py_ssize_t size = items != NULL ? PyList_Size(items) : 0;
    PyObject *copy = items != NULL ? PyTuple_New(1 + size) : NULL;
    if (copy != NULL)
        PyTuple_SetItem(copy, 0, Py_NewRef((PyObject *)&PyDict_Type));
    for (Py_ssize_t i = 0; copy != NULL && i < size; i++) {
        PyObject *item = frozen(PyList_GetItem(items, i));
        if (item == NULL || PyTuple_SetItem(copy, i + 1, item) != 0)
            Py_CLEAR(copy);
    }
    Py_XDECREF(items);
    return copy;
}

/* Returns the value of a key in the dictionary (new reference). Returns NULL without an exception
 * if the key is missing, or NULL with an exception if the look-up fails. */
static PyObject *find_constant(PyObject *constants, PyObject *key) {
#ifdef Py_GIL_DISABLED
    /* A new reference instead of a borrowed one, because another thread may free the value. */
    PyObject *shared = NULL;
    PyDict_GetItemRef(constants, key, &shared);
#else
    PyObject *shared = PyDict_GetItemWithError(constants, key);
    Py_XINCREF(shared);
#endif
    return shared;
}

/* Returns the object that represents all equal tuples or integers (new reference), or NULL. A
 * dictionary is represented by its frozen key, because the dictionary itself may change. */
static PyObject *canonical(PyObject *object, PyObject *constants) {
    if (Py_EnterRecursiveCall(" in a constexpr tuple"))
        return NULL;
    PyObject *key = PyDict_CheckExact(object) ? frozen_dict(object) : frozen(object);
    Py_LeaveRecursiveCall();
    if (key == NULL)
        return NULL;
    PyObject *shared = find_constant(constants, key);
    if (shared == NULL && !PyErr_Occurred()) {
        /* The dict may be cleared at any time, because the guard's entries hold references to its
         * objects. */
        if (PyDict_Size(constants) >= (Py_ssize_t)SILO_GUARD_LIMIT)
            PyDict_Clear(constants);
        PyObject *const stands = PyDict_CheckExact(object) ? key : object;
        if (PyDict_SetItem(constants, key, stands) == 0)
            shared = Py_NewRef(stands);
    }
    Py_DECREF(key);
    return shared;
}

/* Returns whether objects of a class never change and are compared by value, like objects of a
 * frozen dataclass. (An example is a layout: a program may make a new object of an equal layout at
 * each call.) The answer is kept for each class. Returns -1 with an exception set. */
static int is_frozen_class(PyObject *type, PyObject *constants) {
    PyObject *shared = find_constant(constants, type);
    if (shared != NULL || PyErr_Occurred()) {
        const int result = shared != NULL ? shared == Py_True : -1;
        Py_XDECREF(shared);
        return result;
    }
    PyObject *parameters = PyObject_GetAttrString(type, "__dataclass_params__");
    PyObject *frozen = parameters ? PyObject_GetAttrString(parameters, "frozen") : NULL;
    PyObject *eq = frozen ? PyObject_GetAttrString(parameters, "eq") : NULL;
    const bool result = frozen == Py_True && eq == Py_True;
    if (eq == NULL)
        silo_forget_error();
    Py_XDECREF(parameters);
    Py_XDECREF(frozen);
    Py_XDECREF(eq);
    return PyDict_SetItem(constants, type, result ? Py_True : Py_False) == 0 ? result : -1;
}

int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]) {
    unsigned sort = SILO_CONSTANT_OBJECT;
    PyObject *shared = object; /* the object that represents all equal values; the call holds it,
                               and later the guard's entry */
    if (silo_read_small_constant(object, word))
        return 0;
    if (silo_stood_for(object) != NULL)
        return silo_read_constant(plan, name, silo_stood_for(object), constants, holds, word);
    int object_is_frozen = 0;
    if (object != Py_None && !PyBool_Check(object) && !PyUnicode_CheckExact(object) &&
        !PyTuple_Check(object) && !PyFloat_CheckExact(object) && !PyLong_CheckExact(object))
        object_is_frozen = is_frozen_class((PyObject *)Py_TYPE(object), constants);
    if (object_is_frozen < 0)
        return -1;
    if (PyFloat_CheckExact(object)) {
        const double value = PyFloat_AsDouble(object);
        memcpy(&word[1], &value, sizeof value);
        sort = SILO_CONSTANT_FLOAT;
    } else if (PyUnicode_CheckExact(object)) {
        Py_INCREF(shared);
        PyUnicode_InternInPlace(&shared);
        holds->object[holds->objects++] = shared;
    } else if (PyTuple_CheckExact(object) || PyLong_CheckExact(object) ||
               PyDict_CheckExact(object) || object_is_frozen) {
        shared = canonical(object, constants);
        if (shared == NULL && object_is_frozen) {
            silo_forget_error(); /* a field of the object cannot be hashed, so the object is
                                    compared by identity */
            shared = Py_NewRef(object);
        }
        if (shared == NULL)
            return silo_bad_argument(plan->kernel, name, "a hashable constexpr value", object);
        holds->object[holds->objects++] = shared;
    } else if (PyTuple_Check(object)) {
        /* A NamedTuple is refused: it equals a plain tuple, although its fields have names. */
        return silo_bad_argument(plan->kernel, name, "a plain tuple", object);
    }
    if (sort == SILO_CONSTANT_OBJECT)
        word[1] = (uint64_t)(uintptr_t)shared;
    word[0] = SILO_CODE(SILO_VALUE_CONSTANT, sort, 0, 0);
    return 0;
}

PyObject *silo_constant_identity(const uint64_t word[2]) {
    return word[0] == SILO_CODE(SILO_VALUE_CONSTANT, SILO_CONSTANT_OBJECT, 0, 0)
               ? (PyObject *)(uintptr_t)word[1]
               : NULL;
}
