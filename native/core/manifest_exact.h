/* A variant found by the text of its rows, as a writer would write them: nothing that is looked at
 * is decoded. */
#ifndef SILO_MANIFEST_EXACT_H
#define SILO_MANIFEST_EXACT_H

#include "manifest_state.h"

/* The first variant of a kernel that was compiled for exactly `wanted`; -1: there is none, or
 * `wanted` is not an object of
 *
 *     source     [name of the kernel, fingerprint]
 *     target     "cuda:sm_90a"
 *     types      [[name, kind, dtype or null], ...], in the order of the parameters
 *     facts      as a specialization has them
 *     constants  by name: the config's and the specialization's
 *     options    as a config has them
 *
 * A writer may put a constexpr into the config or into the specialization: here both are one.
 * Effects and defaults of parameters do not count. Variants that were made for certain extents or a
 * certain grid, and variants with damaged rows, are not found. */
int64_t silo_variants_exact(const struct silo_manifest *manifest, uint32_t kernel,
                            const struct silo_json *wanted);

#endif
