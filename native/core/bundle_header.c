#include "bundle_header.h"

#include "manifest_members.h"

enum { FLAG_ZSTD_MANIFEST = 1 };

static const char MAGIC[] = "SILOBNDL";
enum { MAGIC_BYTES = sizeof MAGIC - 1 };

/* The header's bytes in the file. */
struct stored {
    char magic[8];
    uint16_t major, minor;
    uint32_t flags;
    uint64_t manifest_offset, manifest_bytes;
    uint8_t sha256[SILO_SHA256_BYTES];
};
_Static_assert(sizeof(struct stored) == SILO_HEADER_BYTES, "the header has no gaps");

/* Fails with SILO_ERROR_DAMAGED at a member of the header. */
#define REFUSE(member, ...)                                                                        \
    silo_fail_at(error, SILO_ERROR_DAMAGED, "header." #member, offsetof(struct stored, member),    \
                 __VA_ARGS__)

int silo_header_read(const uint8_t *data, size_t file_bytes, const char *name,
                     struct silo_header *header, silo_error *error) {
    typedef unsigned long long shown;
    const size_t available = file_bytes < SILO_HEADER_BYTES ? file_bytes : SILO_HEADER_BYTES;
    const size_t magic = available < MAGIC_BYTES ? available : MAGIC_BYTES;
    if (magic != 0 && memcmp(data, MAGIC, magic) != 0)
        return silo_fail_at(error, SILO_ERROR_FOREIGN, "header.magic", 0,
                            "%s: not a .silo file, which silo build writes: it does not begin with "
                            "SILOBNDL",
                            name);
    if (available < SILO_HEADER_BYTES)
        return silo_fail_at(error, SILO_ERROR_TRUNCATED, "header", available,
                            "%s: truncated: %zu bytes of a %d-byte header", name, available,
                            SILO_HEADER_BYTES);
    struct stored stored;
    memcpy(&stored, data, sizeof stored);
    const uint64_t offset = stored.manifest_offset, length = stored.manifest_bytes;
    if (stored.major == 0)
        return REFUSE(major, "%s: there is no format 0", name);
    if (stored.major > SILO_MAJOR || (stored.major == SILO_MAJOR && stored.minor > SILO_MINOR))
        return silo_fail(
            error, SILO_ERROR_NEWER,
            "%s has bundle format %u.%u, written by a newer Silo; this one reads up "
            "to %d.%d: update kernel-silo, or build the bundle again with this version",
            name, stored.major, stored.minor, SILO_MAJOR, SILO_MINOR);
    if ((stored.flags & ~(uint32_t)FLAG_ZSTD_MANIFEST) != 0)
        return REFUSE(flags, "%s: unknown flags %#x", name, stored.flags);
    if (offset < SILO_HEADER_BYTES || offset % SILO_ALIGNMENT != 0)
        return REFUSE(manifest_offset, "%s: the manifest cannot begin at %llu", name,
                      (shown)offset);
    if (length == 0 || length > SILO_MAX_MANIFEST_BYTES)
        return REFUSE(manifest_bytes, "%s: a manifest of %llu bytes is not allowed (1 to %d)", name,
                      (shown)length, SILO_MAX_MANIFEST_BYTES);
    if (offset > file_bytes || length > file_bytes - offset)
        return silo_fail_at(error, SILO_ERROR_TRUNCATED, "header.manifest_bytes",
                            offsetof(struct stored, manifest_bytes),
                            "%s: the file is truncated: it has %zu bytes, and a manifest of %llu "
                            "bytes at %llu; copy or build it again",
                            name, file_bytes, (shown)length, (shown)offset);
    if (length < file_bytes - offset)
        return REFUSE(manifest_bytes, "%s: %llu bytes follow the manifest, which must end the file",
                      name, (shown)(file_bytes - offset - length));
    *header = (struct silo_header){
        .major = stored.major,
        .minor = stored.minor,
        .zstd_manifest = stored.flags != 0,
        .manifest_offset = offset,
        .manifest_bytes = length,
    };
    memcpy(header->manifest_sha256, stored.sha256, sizeof stored.sha256);
    return 0;
}
