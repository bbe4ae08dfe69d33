/* Errors of the native module: the classes come from silo.errors. */
#ifndef SILO_ERRORS_H
#define SILO_ERRORS_H

#include "error.h"
#include "python.h"

extern PyObject *silo_argument_error;   /* silo.errors.ArgumentError */
extern PyObject *silo_launch_error;     /* silo.errors.LaunchError */
extern PyObject *silo_device_error;     /* silo.errors.DeviceError */
extern PyObject *silo_expression_error; /* silo.errors.ExpressionError */

/* Fetch the classes; -1 with an exception set. */
int silo_errors_init(void);

/* Raise the error that a function of native/core reported, as the class of silo.errors for its
 * code, and clear it. Returns -1. */
int silo_raise(silo_error *error);

/* The same as `type` whatever the code, but a MemoryError if the host is out of memory. For errors
 * whose class the caller decides. */
int silo_raise_as(PyObject *type, silo_error *error);

/* "KERNEL: argument 'NAME' needs WANTED, got <description of object>", as ArgumentError, chaining
 * an exception already set as its cause. Returns -1. */
int silo_bad_argument(PyObject *kernel, PyObject *name, const char *wanted, PyObject *got);

/* A new reference to a short description of an argument: its type, and its value or dtype and
 * device. */
PyObject *silo_describe(PyObject *object);

/* Make `cause` (stolen, may be NULL) the cause of the exception now set. */
void silo_chain(PyObject *cause);

/* Put a note, formatted as PyUnicode_FromFormat does, below the traceback of the exception that is
 * set. If that fails, the exception stays as it is, which is enough. */
void silo_add_note(const char *format, ...);

/* Take the exception now set as one normalised object (new reference), or NULL. */
PyObject *silo_take_exception(void);

/* Clear the exception that is set, if any, after a test whether an object has an attribute. Of a
 * KeyboardInterrupt the interrupt is set again, and raised as soon as Python looks: it is the
 * program's own. */
void silo_forget_error(void);

#endif
