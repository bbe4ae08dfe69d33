/* Errors are returned as values; the Python module turns them into exceptions.
 *
 * `struct silo_error` is public (silo.h). A function that may fail takes a pointer to one. If it
 * fails, the place that detects the fault fills the error, and the function returns -1 or NULL;
 * otherwise the error is unchanged. `error` may be NULL if the caller does not need the text. */
#ifndef SILO_ERROR_H
#define SILO_ERROR_H

#include "silo.h"

#include <stdarg.h>

/* Fills `error` with a code and a printf-formatted text, which ends with "..." if it was too long.
 * Returns -1. */
int silo_fail(silo_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int silo_fail_with(silo_error *error, int code, const char *format, va_list arguments);

/* Like silo_fail, for a fault in a file: `field` names the part of the file, `offset` is in bytes.
 */
int silo_fail_at(silo_error *error, int code, const char *field, uint64_t offset,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Like silo_fail, and also stores a driver's error code. */
int silo_fail_driver(silo_error *error, int code, int driver_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Like silo_fail_driver, for texts that may be longer than `text`, for example the output of a
 * driver's compiler. If `text` is cut, `details` holds the full text, which the caller frees with
 * silo_error_clear. */
int silo_fail_long(silo_error *error, int code, int driver_code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Fills `error` with SILO_ERROR_MEMORY and "out of memory". Returns -1. */
int silo_fail_memory(silo_error *error);

#endif
