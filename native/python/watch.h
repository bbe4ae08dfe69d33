/* The sources of a kernel's code besides its text: globals, cells of closures, attributes. */
#ifndef SILO_WATCH_H
#define SILO_WATCH_H

#include "python.h"

/* Whether `places` has the right form: a tuple of holder, name, value, holder, name, value and so
 * on. The value belongs to the name in a dictionary, else to an object's attribute, identified by
 * its address; without a name (None) the holder is a container, and the value an equal copy of it.
 */
bool silo_watch_check(PyObject *places);

/* Whether each value is unchanged; false with or without an exception if one has changed. May run
 * Python code for attributes and containers. */
bool silo_watch_holds(PyObject *places);

#endif
