/* The blob table of a manifest. */
#ifndef SILO_MANIFEST_BLOBS_H
#define SILO_MANIFEST_BLOBS_H

#include "manifest_state.h"

/* The member `blobs`: in order, back to back but for alignment, up to the manifest. */
int silo_blobs_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node);

/* The first blob with this sha256, in hex, and of this kind if `kind` is not NULL; -1: none. */
int64_t silo_blobs_find(const struct silo_manifest *manifest, const char *sha256, size_t length,
                        const struct silo_string *kind);

/* The number of the blob that `index` names at `field`; -1 with the error filled. */
int64_t silo_blob_number(const struct silo_manifest *manifest, const struct silo_decoding *decoding,
                         const struct silo_field *field, const struct silo_json *index);

#endif
