/* Constexpr values as two words of a key. Small numbers are stored by value; for any other value,
 * the words hold an object that represents all equal values. */
#ifndef SILO_CONSTANTS_H
#define SILO_CONSTANTS_H

#include "frame.h"

enum silo_constant_sort {
    SILO_CONSTANT_INT = 1,
    SILO_CONSTANT_FLOAT = 2,
    SILO_CONSTANT_OBJECT = 3
};

/* Stores the words of an exact int of at most 64 bits, the usual constexpr. Returns false for any
 * other object, and stores nothing. */
SILO_INLINE bool silo_read_small_constant(PyObject *object, uint64_t word[2]) {
    int overflow;
    if (Py_TYPE(object) != &PyLong_Type)
        return false;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    word[0] = SILO_CODE(SILO_VALUE_CONSTANT, SILO_CONSTANT_INT, 0, 0);
    word[1] = (uint64_t)value;
    return overflow == 0;
}

/* Stores the two words of a constexpr value or option called `name`. The objects that it needs are
 * held in `holds`. Returns -1 with an exception set. */
int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]);
/* Returns the object whose address is in the words (borrowed), or NULL if they hold a number. */
PyObject *silo_constant_identity(const uint64_t word[2]);

#endif
