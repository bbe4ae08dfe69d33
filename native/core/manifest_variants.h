/* The variants of a manifest's kernels, and their groups (struct silo_group). */
#ifndef SILO_MANIFEST_VARIANTS_H
#define SILO_MANIFEST_VARIANTS_H

#include "manifest_state.h"

/* Makes the groups of a kernel, which silo_kernel_head has decoded, and stores them in the kernel's
 * `info`. */
int silo_variants_group(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel);

/* Returns a variant, decoded at its first use; NULL with the error filled. Call silo_kernel_head
 * for the kernel first. */
const struct silo_variant *silo_variants_get(struct silo_manifest *manifest,
                                             const struct silo_decoding *decoding, uint32_t kernel,
                                             uint32_t number);

/* Checks all variants of a kernel, and that no variant occurs twice. */
int silo_variants_check(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel);

/* Whether a variant has this config; does not decode the variant. */
bool silo_variants_has_config(const struct silo_manifest *manifest, uint32_t kernel,
                              uint32_t number, const struct silo_config *config);

/* Whether a variant was made by the compiler in this row of the table; does not decode the variant.
 */
bool silo_variants_has_compiler(const struct silo_manifest *manifest, uint32_t kernel,
                                uint32_t number, uint32_t compiler);

#endif
