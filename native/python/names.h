/* Attribute names as interned strings, which compare by address. */
#ifndef SILO_NAMES_H
#define SILO_NAMES_H

#include "python.h"

struct silo_name {
    PyObject **slot; /* receives an owned reference, which is kept until the process ends */
    const char *text;
};

/* Interns `count` names; -1 with an exception set. */
int silo_intern(const struct silo_name *names, size_t count);

#endif
