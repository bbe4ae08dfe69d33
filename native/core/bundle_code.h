/* Code of a bundle, loaded once a device and blob: trusted if it is native code of the host, its
 * bytes verified, its parameters compared with the file's. */
#ifndef SILO_BUNDLE_CODE_H
#define SILO_BUNDLE_CODE_H

#include "binary.h"
#include "queue_place.h"

/* One blob on one device; lives as long as the bundle. */
struct silo_loaded_code {
    struct silo_loaded_code *next; /* owned: the list of the bundle */
    const struct silo_located *where;
    uint32_t blob;
    const char *entry;          /* of a function of the program; NULL: the whole object */
    struct silo_binary *binary; /* owned: a reference */
};

/* The code of a variant of kernel number `kernel`, and its function. NULL with
 * SILO_ERROR_UNSUPPORTED (a kind of code that no driver loads), _UNTRUSTED, _DAMAGED and the like,
 * _LOAD, _LIMIT, _MEMORY. With the bundle's lock. */
const struct silo_loaded_code *silo_code_load(struct silo_bundle *bundle, uint32_t kernel,
                                              uint32_t number, const struct silo_variant *variant,
                                              const struct silo_located *where,
                                              struct silo_function *function, silo_error *error);

void silo_code_free(struct silo_bundle *bundle);

#endif
