/* Watches the values that a kernel's code was compiled with, besides its text: globals, cells of
 * closures, and attributes. */
#ifndef SILO_WATCH_H
#define SILO_WATCH_H

#include "python.h"

/* Checks that `watched` is a tuple of holder, name, value, holder, name, value and so on; false
 * with an exception set. If the holder is a dictionary, the value is the dictionary's value for the
 * name; otherwise the value is the holder's attribute of that name. In both cases the value is
 * compared by address. If the name is None, the holder is a container and the value an equal copy
 * of it. */
bool silo_watch_check(PyObject *watched);

/* Returns whether all values are unchanged; if one has changed, an exception may be set. May run
 * Python code to read attributes and compare containers. */
bool silo_watch_holds(PyObject *watched);

#endif
