/* Finds a variant by comparing the JSON of its table rows, without decoding them. */
#ifndef SILO_MANIFEST_EXACT_H
#define SILO_MANIFEST_EXACT_H

#include "manifest_state.h"

/* Returns the number of the first variant of a kernel that was compiled for exactly `object`.
 * Returns -1 if there is none, or if `object` is not an object with these members:
 *
 *     source     [name of the kernel, fingerprint]
 *     target     "cuda:sm_90a"
 *     types      [[name, kind, dtype or null], ...], in the order of the parameters
 *     facts      as in a specialization
 *     constants  by name: constants of the config and of the specialization
 *     options    as in a config
 *
 * A bundle may have a constexpr in the config or in the specialization; both count as constants
 * here. Effects and defaults of parameters are not compared. Variants that were made for certain
 * extents or a certain grid, and variants with damaged rows, are not found. */
int64_t silo_variants_exact(const struct silo_manifest *manifest, uint32_t kernel,
                            const struct silo_json *object);

#endif
