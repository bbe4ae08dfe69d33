/* What a kernel's code was made from besides its text: globals, cells of closures, attributes. */
#ifndef SILO_WATCH_H
#define SILO_WATCH_H

#include "python.h"

/* Whether `places` can be looked at: a tuple of (holder, name, value) one behind the other. The
 * value is that of the name in a dictionary, else of an object's attribute, known by its address;
 * without a name (None) the holder is a container, and the value an equal copy of it. */
bool silo_watch_check(PyObject *places);

/* Whether each value is what it was; false with or without an exception where one is not. May run
 * Python code for attributes and containers. */
bool silo_watch_holds(PyObject *places);

#endif
