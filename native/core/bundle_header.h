/* The header of a .silo file, and the format's limits (silo.bundle.format). */
#ifndef SILO_BUNDLE_HEADER_H
#define SILO_BUNDLE_HEADER_H

#include "error.h"
#include "sha256.h"

enum {
    SILO_HEADER_BYTES = 64,
    SILO_ALIGNMENT = 64,
    /* limit for the manifest as stored, and for its decompressed text */
    SILO_MAX_MANIFEST_BYTES = 256 << 20,
    SILO_MAX_BLOB_BYTES = 1 << 30,
    SILO_MAX_BLOBS = 1 << 20,
    SILO_MAX_KERNELS = 1 << 16,
    SILO_MAX_VARIANTS = 1 << 20, /* per kernel */
    SILO_MAX_RULES = 4096,       /* per kernel */
    SILO_MAX_SIDECARS = 16,      /* per variant */
    SILO_MAX_RATIO = 256, /* the largest ratio of a blob's raw bytes to its bytes in the file */
    /* The memory that a reader may use for a file is divided by these numbers to get the limit of
     * each part. */
    SILO_MANIFEST_SHARE = 2, /* the parsed manifest */
    SILO_TEXT_SHARE = 4,     /* the manifest's text */
    SILO_EXPANDED_SHARE = 8, /* the decoded variants of a kernel */
};

struct silo_header {
    uint16_t major, minor;
    bool zstd_manifest;
    uint64_t manifest_offset, manifest_bytes;
    uint8_t manifest_sha256[SILO_SHA256_BYTES];
};

/* Reads and checks the header of the file in `data`. `name` is used in messages. */
int silo_header_read(const uint8_t *data, size_t file_bytes, const char *name,
                     struct silo_header *header, silo_error *error);

/* Rounds up to a multiple of SILO_ALIGNMENT. */
static inline uint64_t silo_aligned(uint64_t offset) {
    return (offset + SILO_ALIGNMENT - 1) / SILO_ALIGNMENT * SILO_ALIGNMENT;
}

/* Whether a zstd frame of `stored_bytes` may stand for a blob of `raw_bytes`: the frame must be
 * smaller than the blob, but by a factor of at most SILO_MAX_RATIO. */
static inline bool silo_believed(uint64_t raw_bytes, uint64_t stored_bytes) {
    return stored_bytes < raw_bytes && raw_bytes <= SILO_MAX_RATIO * silo_aligned(stored_bytes);
}

#endif
