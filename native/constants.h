/* Constexpr values as two words of a key: small numbers by value, the rest by an object that stands
 * for all equal ones. */
#ifndef SILO_CONSTANTS_H
#define SILO_CONSTANTS_H

#include "frame.h"

/* The two words of a constexpr value or option called `name`. */
int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]);
/* The object whose identity is in the words (borrowed), or NULL where they hold a value. */
PyObject *silo_constant_identity(const uint64_t word[2]);

#endif
