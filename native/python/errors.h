/* Raises errors from the native module; the classes come from silo.errors. */
#ifndef SILO_ERRORS_H
#define SILO_ERRORS_H

#include "error.h"
#include "python.h"

extern PyObject *silo_argument_error;   /* silo.errors.ArgumentError */
extern PyObject *silo_launch_error;     /* silo.errors.LaunchError */
extern PyObject *silo_device_error;     /* silo.errors.DeviceError */
extern PyObject *silo_expression_error; /* silo.errors.ExpressionError */

/* Imports the classes; -1 with an exception set. */
int silo_errors_init(void);

/* Raises the error that a function of native/core reported, with the class of silo.errors for its
 * code, and clears it. Returns -1. */
int silo_raise(silo_error *error);

/* Raises the error as `type`, whatever its code, for callers that decide the class themselves. If
 * the host is out of memory, it is still a MemoryError. Returns -1. */
int silo_raise_as(PyObject *type, silo_error *error);

/* Raises an ArgumentError "KERNEL: argument 'NAME' needs EXPECTED, got <description of object>". An
 * exception that is already set becomes its cause. Returns -1. */
int silo_bad_argument(PyObject *kernel, PyObject *name, const char *expected, PyObject *got);

/* Returns a short description of an argument (new reference): its type, and its value or its dtype
 * and device. */
PyObject *silo_describe(PyObject *object);

/* Makes `cause` (stolen, may be NULL) the cause of the exception that is set. */
void silo_chain(PyObject *cause);

/* Adds a note below the traceback of the exception that is set; `format` is as for
 * PyUnicode_FromFormat. If this fails, the exception stays as it is. */
void silo_add_note(const char *format, ...);

/* Takes the exception that is set, normalised to one object (new reference); NULL if none is set.
 */
PyObject *silo_take_exception(void);

/* Clears the exception that is set, if any, after a test whether an object has an attribute. A
 * KeyboardInterrupt is not lost: the interrupt is set again, and Python raises it at its next
 * check. */
void silo_forget_error(void);

#endif
