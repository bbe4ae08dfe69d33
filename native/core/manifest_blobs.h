/* The blob table of a manifest. */
#ifndef SILO_MANIFEST_BLOBS_H
#define SILO_MANIFEST_BLOBS_H

#include "manifest_state.h"

/* Decodes the member `blobs`. The blobs must be in order, adjacent except for alignment, and end
 * where the manifest begins. */
int silo_blobs_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node);

/* Returns the number of the first blob with this sha256 (in hex) and kind (NULL: any kind), or -1.
 */
int64_t silo_blobs_find(const struct silo_manifest *manifest, const char *sha256, size_t length,
                        const struct silo_string *kind);

/* Returns the blob number in the value `index` at `field`; -1 with the error filled. */
int64_t silo_blob_number(const struct silo_manifest *manifest, const struct silo_decoding *decoding,
                         const struct silo_field *field, const struct silo_json *index);

#endif
