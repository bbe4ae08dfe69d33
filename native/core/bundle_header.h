/* The outer layout of a .silo file: its header and its limits (silo.bundle.format). */
#ifndef SILO_BUNDLE_HEADER_H
#define SILO_BUNDLE_HEADER_H

#include "error.h"
#include "sha256.h"

enum {
    SILO_HEADER_BYTES = 64,
    SILO_ALIGNMENT = 64,
    SILO_MAX_MANIFEST_BYTES = 256 << 20, /* stored or decompressed */
    SILO_MAX_BLOB_BYTES = 1 << 30,
    SILO_MAX_BLOBS = 1 << 20,
    SILO_MAX_KERNELS = 1 << 16,
    SILO_MAX_VARIANTS = 1 << 20, /* of one kernel */
    SILO_MAX_RULES = 4096,       /* of one kernel */
    SILO_MAX_SIDECARS = 16,      /* of one variant */
    SILO_MAX_RATIO = 256,        /* of a blob's raw bytes to the room it takes in the file */
    /* Shares of the memory that a reader may spend on a file, as divisors. */
    SILO_MANIFEST_SHARE = 2, /* of the parsed manifest */
    SILO_TEXT_SHARE = 4,     /* its text */
    SILO_EXPANDED_SHARE = 8, /* of a kernel's variants, written out */
};

struct silo_header {
    uint16_t major, minor;
    bool zstd_manifest;
    uint64_t manifest_offset, manifest_bytes;
    uint8_t manifest_sha256[SILO_SHA256_BYTES];
};

/* Read and check the header of the file `data`, which is called `name` in messages. */
int silo_header_read(const uint8_t *data, size_t file_bytes, const char *name,
                     struct silo_header *header, silo_error *error);

/* The next multiple of 64. */
static inline uint64_t silo_aligned(uint64_t offset) {
    return (offset + SILO_ALIGNMENT - 1) / SILO_ALIGNMENT * SILO_ALIGNMENT;
}

/* Whether a blob of `raw_bytes` may be stored as a zstd frame of `stored_bytes`. */
static inline bool silo_believed(uint64_t raw_bytes, uint64_t stored_bytes) {
    return stored_bytes < raw_bytes && raw_bytes <= SILO_MAX_RATIO * silo_aligned(stored_bytes);
}

#endif
