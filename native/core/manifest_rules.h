/* Decodes the dispatch rules of a manifest's kernels (silo.core.dispatch). */
#ifndef SILO_MANIFEST_RULES_H
#define SILO_MANIFEST_RULES_H

#include "manifest_state.h"

/* Decodes the member `rules` of a kernel, whose key was decoded already. */
int silo_decode_rules(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_field *field, const struct silo_json *node,
                      struct silo_kernel_info *kernel);

#endif
