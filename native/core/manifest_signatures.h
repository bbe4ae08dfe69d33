/* Decodes signatures, specializations, extents and targets of a manifest (silo.core.signature,
 * specialization, extents, target). */
#ifndef SILO_MANIFEST_SIGNATURES_H
#define SILO_MANIFEST_SIGNATURES_H

#include "manifest_checks.h"

int silo_decode_signature(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, struct silo_signature *signature);

int silo_decode_specialization(const struct silo_decoding *decoding, const struct silo_field *field,
                               const struct silo_json *node,
                               struct silo_specialization *specialization);

int silo_decode_extents(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, const struct silo_named_extents **extents,
                        uint32_t *count);

int silo_decode_target(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_target *target);

/* Whether two signatures have parameters with the same names in the same order. */
bool silo_same_parameters(const struct silo_signature *left, const struct silo_signature *right);

#endif
