/* The digests of native CPU code and of plans, which identify what a user consents to run
 * (docs/bundle-format.md, section 6). */
#ifndef SILO_HOST_DIGEST_H
#define SILO_HOST_DIGEST_H

#include "json_text.h"
#include "manifest_state.h"

/* Computes the digest of a decoded variant; -1 if out of memory. */
int silo_host_digest(const struct silo_manifest *manifest, uint32_t kernel, uint32_t number,
                     const struct silo_variant *variant, char digest[SILO_SHA256_HEX]);

/* Computes the digest of a plan. `codes` are the digests of the CPU code of its kernels, sorted,
 * each once. `text` (initially {0}, freed by the caller) receives the plan's JSON, `sha256` the
 * hash of that JSON. Returns -1 if out of memory. */
int silo_host_plan_digest(const struct silo_manifest *manifest, uint32_t plan,
                          const char (*codes)[SILO_SHA256_HEX], size_t count,
                          struct silo_json_text *text, char sha256[SILO_SHA256_HEX],
                          char digest[SILO_SHA256_HEX]);

#endif
