/* Attribute names as interned strings: looked up by address. */
#ifndef SILO_NAMES_H
#define SILO_NAMES_H

#include "python.h"

struct silo_name {
    PyObject **slot; /* gets an owned reference, kept to the end of the process */
    const char *text;
};

/* -1 with an exception set. */
int silo_intern(const struct silo_name *names, size_t count);

#endif
