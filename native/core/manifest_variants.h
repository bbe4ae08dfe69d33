/* The variants of a manifest's kernels, and their groups. */
#ifndef SILO_MANIFEST_VARIANTS_H
#define SILO_MANIFEST_VARIANTS_H

#include "manifest_state.h"

/* Makes the groups of a kernel whose head was decoded, in its `info`. */
int silo_variants_group(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel);

/* One variant, decoded once; NULL with the error filled. The kernel's head was decoded. */
const struct silo_variant *silo_variants_get(struct silo_manifest *manifest,
                                             const struct silo_decoding *decoding, uint32_t kernel,
                                             uint32_t number);

/* Every variant of a kernel, and that none occurs twice. */
int silo_variants_check(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel);

/* Whether a variant has this config, without decoding it. */
bool silo_variants_has_config(const struct silo_manifest *manifest, uint32_t kernel,
                              uint32_t number, const struct silo_config *config);

/* Whether a variant is by the compiler of this row of the table, found without decoding it. */
bool silo_variants_has_compiler(const struct silo_manifest *manifest, uint32_t kernel,
                                uint32_t number, uint32_t compiler);

#endif
