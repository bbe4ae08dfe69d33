/* The parameters of a bundle's binary, as its launch info lists them (silo.launch.runtime.bind). */
#ifndef SILO_LAYOUT_H
#define SILO_LAYOUT_H

#include "manifest.h"
#include "packing.h"

/* How the parameters of a variant's binary are made from the arguments of its kernel. `parameters`
 * is the kernel's signature, whose order the arguments of a call have; `function` the variant's,
 * loaded. -1 with SILO_ERROR_UNSUPPORTED, naming the kernel and the parameter: the binary takes
 * something that cannot be passed; or SILO_ERROR_MEMORY. Clear it either way. */
int silo_layout_pack(struct silo_packing *packing, const struct silo_variant *variant,
                     const struct silo_signature *parameters, const struct silo_function *function,
                     silo_error *error);

#endif
