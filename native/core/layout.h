/* Makes the packing of a bundle's binary: how each parameter is made, from the list of parameters
 * in the binary's launch info (silo.launch.runtime.bind). */
#ifndef SILO_LAYOUT_H
#define SILO_LAYOUT_H

#include "manifest.h"
#include "packing.h"

/* Fills `packing`: how to make the parameters of a variant's binary from the arguments of its
 * kernel. `parameters` is the kernel's signature, which gives the order of the arguments;
 * `function` is the variant's loaded function. Returns -1 with SILO_ERROR_MEMORY, or with
 * SILO_ERROR_UNSUPPORTED, naming kernel and parameter, if the binary takes a parameter that cannot
 * be passed. After success and after failure, the caller must release `packing` with
 * silo_packing_clear. */
int silo_layout_pack(struct silo_packing *packing, const struct silo_variant *variant,
                     const struct silo_signature *parameters, const struct silo_function *function,
                     silo_error *error);

#endif
