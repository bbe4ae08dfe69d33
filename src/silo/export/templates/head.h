/**
 * The kernels of @ORIGIN@ as functions of C. Made by `silo export`; see README.md.
 *
 * Each returns 0, or a code of `enum silo_code` with `*error` filled (`error` may be NULL). `queue`
 * says where the kernel runs. The functions that end in `_warmup` load all that the same call needs
 * and launch nothing, as before a graph is captured.
 */
#ifndef @GUARD@_H
#define @GUARD@_H

#include "silo/elements.h"
#include "silo/silo.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Open the embedded bundle with options of your own (a log, an allocator of scratch memory, ...),
 * before the first call, which else opens it with the usual ones. SILO_ERROR_USAGE where it is open.
 */
int @NAME@_open(const silo_options *options, silo_error *error);

/**
 * Unload all code. Launches must have ended; the next call opens the bundle again.
 */
void @NAME@_close(void);

/**
 * The open bundle and one of its kernels, for silo.h's own functions. NULL with `error` filled.
 */
silo_bundle *@NAME@_bundle(silo_error *error);
silo_kernel *@NAME@_kernel(const char *name, silo_error *error);

