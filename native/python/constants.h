/* Constexpr values as two words of a key: small numbers by value, the rest by an object that
 * represents all equal values. */
#ifndef SILO_CONSTANTS_H
#define SILO_CONSTANTS_H

#include "frame.h"

enum silo_constant_sort {
    SILO_CONSTANT_INT = 1,
    SILO_CONSTANT_FLOAT = 2,
    SILO_CONSTANT_OBJECT = 3
};

/* The words of an exact int of 64 bits, the usual constexpr; false: not one, and nothing is stored.
 */
SILO_INLINE bool silo_read_small_constant(PyObject *object, uint64_t word[2]) {
    int overflow;
    if (Py_TYPE(object) != &PyLong_Type)
        return false;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    word[0] = SILO_CODE(SILO_VALUE_CONSTANT, SILO_CONSTANT_INT, 0, 0);
    word[1] = (uint64_t)value;
    return overflow == 0;
}

/* The two words of a constexpr value or option called `name`. */
int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]);
/* The object whose identity is in the words (borrowed), or NULL if they hold a value. */
PyObject *silo_constant_identity(const uint64_t word[2]);

#endif
