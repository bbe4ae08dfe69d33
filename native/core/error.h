/* Errors as values: the C runtime returns them, and the Python module turns them into its classes.
 *
 * `struct silo_error` is public (silo.h). A function that may fail takes one, fills it once, where
 * the fault is found, and returns -1 or NULL; on success it does not change it. `error` may be NULL
 * if the caller does not want the text. */
#ifndef SILO_ERROR_H
#define SILO_ERROR_H

#include "silo.h"

#include <stdarg.h>

/* Fill `error` with a code and a text formatted as by printf, cut with "..." where it is too long.
 * Returns -1. */
int silo_fail(silo_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int silo_fail_with(silo_error *error, int code, const char *format, va_list arguments);

/* The same for something at a place of a file: `field` names it, `offset` is in bytes. */
int silo_fail_at(silo_error *error, int code, const char *field, uint64_t offset,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same for a driver's own code, which the error keeps. */
int silo_fail_driver(silo_error *error, int code, int driver_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same, for a text that may be longer than an error holds, for example a driver's compiler's:
 * if it is cut in `text`, `details` has all of it, which the caller frees by silo_error_clear.
 * */
int silo_fail_long(silo_error *error, int code, int driver_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "out of memory": SILO_ERROR_MEMORY; -1. */
int silo_fail_memory(silo_error *error);

#endif
