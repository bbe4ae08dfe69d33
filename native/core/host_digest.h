/* What consent to host code is given to: docs/bundle-format.md, section 6. */
#ifndef SILO_HOST_DIGEST_H
#define SILO_HOST_DIGEST_H

#include "json_text.h"
#include "manifest_state.h"

/* The digest of a decoded variant; -1 without memory. */
int silo_host_digest(const struct silo_manifest *manifest, uint32_t kernel, uint32_t number,
                     const struct silo_variant *variant, char digest[SILO_SHA256_HEX]);

/* The digest of a plan. `codes` are the digests of the CPU code of its kernels, sorted, each
 * once. `text` (begins as {0}, the caller frees it) becomes its JSON, `sha256` that text's. -1
 * where memory is out. */
int silo_host_plan_digest(const struct silo_manifest *manifest, uint32_t plan,
                          const char (*codes)[SILO_SHA256_HEX], size_t count,
                          struct silo_json_text *text, char sha256[SILO_SHA256_HEX],
                          char digest[SILO_SHA256_HEX]);

#endif
