/* What consent to host code is given to: docs/bundle-format.md, section 6. */
#ifndef SILO_HOST_DIGEST_H
#define SILO_HOST_DIGEST_H

#include "manifest_state.h"

/* Of a variant that was decoded; -1 where memory is out. */
int silo_host_digest(const struct silo_manifest *manifest, uint32_t kernel, uint32_t number,
                     const struct silo_variant *variant, char digest[SILO_SHA256_HEX]);

#endif
