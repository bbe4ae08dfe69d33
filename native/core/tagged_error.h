/* Error messages about a tagged argument: the kernel, the argument, its requirement and the given
 * value. */
#ifndef SILO_TAGGED_ERROR_H
#define SILO_TAGGED_ERROR_H

#include "intake.h"

/* Describes an argument: "an int64 (3)", "an array of float32, shape [4, 3]". */
void silo_tagged_describe(const silo_argument *argument, char *text, size_t room);

/* Fails with "KERNEL: argument 'NAME' needs EXPECTED, got ACTUAL". If `expected` is NULL, the
 * parameter's own requirement is used. Returns -1. */
int silo_tagged_fail(const struct silo_intake *intake, int32_t index, const silo_argument *argument,
                     int code, const char *expected, silo_error *error);

/* Fails with "KERNEL: the tensor descriptor 'NAME' ...". Returns -1. */
int silo_tagged_refuse(const struct silo_intake *intake, int32_t index, int code, silo_error *error,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Checks that an argument is valid for any kernel. Fails for an unknown kind or element type, an
 * impossible rank or shape, or a text that is a null pointer. Returns 0 if it is valid. */
int silo_tagged_check(const struct silo_intake *intake, int32_t index,
                      const silo_argument *argument, silo_error *error);

/* Fails with "NAME is called without a, b; its parameters: ...". Returns -1. */
int silo_tagged_missing(const struct silo_intake *intake, const silo_argument *arguments,
                        size_t count, silo_error *error);

/* Fails with "NAME takes N arguments, M were given; its parameters: ...". Returns -1. */
int silo_tagged_too_many(const struct silo_intake *intake, size_t count, silo_error *error);

#endif
