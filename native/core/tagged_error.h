/* The fault of a tagged argument, in words: the kernel, the argument, its requirement and the given
 * value. */
#ifndef SILO_TAGGED_ERROR_H
#define SILO_TAGGED_ERROR_H

#include "intake.h"

/* An argument in a few words: "an int64 (3)", "an array of float32, shape [4, 3]". */
void silo_tagged_describe(const silo_argument *argument, char *text, size_t room);

/* "KERNEL: argument 'NAME' needs WANTED, got GIVEN"; `wanted` NULL: the parameter's own
 * requirement. -1.
 */
int silo_tagged_fail(const struct silo_intake *intake, int32_t index, const silo_argument *argument,
                     int code, const char *wanted, silo_error *error);

/* "KERNEL: the tensor descriptor 'NAME' ..."; -1. */
int silo_tagged_refuse(const struct silo_intake *intake, int32_t index, int code, silo_error *error,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* For an argument that cannot be read whatever the kernel: an unknown kind or element, an
 * impossible rank or shape, a text that is a null pointer. 0: none of these. */
int silo_tagged_check(const struct silo_intake *intake, int32_t index,
                      const silo_argument *argument, silo_error *error);

/* "NAME is called without a, b; its parameters: ...". -1. */
int silo_tagged_missing(const struct silo_intake *intake, const silo_argument *arguments,
                        size_t count, silo_error *error);

/* "NAME takes N arguments, M were given; its parameters: ...". -1. */
int silo_tagged_too_many(const struct silo_intake *intake, size_t count, silo_error *error);

#endif
