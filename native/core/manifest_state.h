/* A manifest that is being read, with the parts decoded so far. */
#ifndef SILO_MANIFEST_STATE_H
#define SILO_MANIFEST_STATE_H

#include "bundle_header.h"
#include "manifest_tables.h"

struct silo_kernel_row {
    struct silo_string name;
    const struct silo_json *members[SILO_KERNEL_MEMBERS];
    struct silo_kernel_info *info; /* the kernel without its groups; NULL before it is decoded */
    bool grouped;                  /* whether `info` also has the kernel's groups of variants */
    const struct silo_variant **variants; /* may be NULL; each entry is NULL before its first use */
    uint64_t expanded; /* total length of the table rows to which the decoded variants refer */
};

struct silo_manifest {
    struct silo_header header;
    struct silo_arena arena;
    const char *file; /* name of the file, for messages */
    uint64_t allowed; /* bytes of memory that reading the file may take */
    struct silo_known_names known;
    uint32_t blob_count, kernel_count;
    const struct silo_blob *blobs;
    const uint32_t *blob_kinds;  /* for each blob, the number of the first blob of its kind */
    const struct silo_json *top; /* the whole document, which is an object */
    struct silo_table tables[SILO_TABLES];
    struct silo_kernel_row *kernels; /* sorted by name */
    uint32_t plan_count;
    const struct silo_recorded_plan *plans; /* sorted by name */
};

static inline struct silo_decoding silo_decoding_of(struct silo_manifest *manifest,
                                                    silo_error *error) {
    return (struct silo_decoding){.arena = &manifest->arena,
                                  .file = manifest->file,
                                  .offset = manifest->header.manifest_offset,
                                  .known = &manifest->known,
                                  .minor = manifest->header.minor,
                                  .error = error};
}

#endif
