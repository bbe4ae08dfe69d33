/* Loads the code of a bundle, once for each device and blob. The blob's hash is verified, native
 * code of the CPU must be trusted, and the code's parameters are compared with the bundle's layout.
 */
#ifndef SILO_BUNDLE_CODE_H
#define SILO_BUNDLE_CODE_H

#include "binary.h"
#include "queue_device.h"

/* The code of a blob, loaded on a device. Lives as long as the bundle. */
struct silo_loaded_code {
    struct silo_loaded_code *next; /* owned: the list of the bundle */
    const struct silo_used_device *where;
    uint32_t blob;
    const char *entry; /* name of a function compiled into the program; NULL: code of the bundle */
    struct silo_binary *binary; /* owned: a reference */
};

/* Returns the loaded code of a variant of kernel number `kernel`, and fills `function`. On failure
 * returns NULL with SILO_ERROR_UNSUPPORTED (a kind of code that no driver loads), _UNTRUSTED,
 * _DAMAGED and other codes of the reader, _LOAD, _LIMIT, _MEMORY. The caller holds the bundle's
 * lock. */
const struct silo_loaded_code *silo_code_load(struct silo_bundle *bundle, uint32_t kernel,
                                              uint32_t number, const struct silo_variant *variant,
                                              const struct silo_used_device *where,
                                              struct silo_function *function, silo_error *error);

void silo_code_free(struct silo_bundle *bundle);

#endif
