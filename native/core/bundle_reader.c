/* Reads an open bundle: the manifest is verified on opening, kernels and variants are decoded at
 * their first use, and each blob is verified when it is read. Nothing is executed. The counterpart
 * in Python is silo.bundle.reader. */
#include "bundle_codec.h"
#include "fork_lock.h"
#include "host_digest.h"
#include "manifest_blobs.h"
#include "manifest_kernels.h"
#include "manifest_open.h"
#include "manifest_variants.h"

#include <stdio.h>
#include <stdlib.h>

struct silo_reader {
    /* Held while a table, kernel or variant is decoded. Each is decoded once, by the first thread
     * that needs it, and never changes afterwards. */
    struct silo_fork_lock decoding;
    struct silo_manifest manifest;
    const uint8_t *data; /* borrowed */
    bool may_change;     /* as in struct silo_reader_source */
    const char *name;    /* in the arena */
    char *text;          /* owned: the manifest's text, which the parser modifies in place */
    char identity[SILO_SHA256_HEX];
};

enum { MIB_SHIFT = 20 };
static const uint64_t FILE_MEMORY = UINT64_C(64) << MIB_SHIFT;

/* ---- opening ---- */

static const char *copy_text(struct silo_arena *arena, const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copied = silo_arena_array(arena, bytes, 1);
    return copied != NULL ? memcpy(copied, text, bytes) : NULL;
}

static int copy_names(struct silo_arena *arena, const char *const *names,
                      const char *const **copied) {
    size_t count = 0;
    if (names == NULL)
        return 0;
    while (names[count] != NULL)
        count++;
    const char **copies = silo_arena_array(arena, count + 1, sizeof *copies);
    if (copies == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        copies[i] = copy_text(arena, names[i]);
        if (copies[i] == NULL)
            return -1;
    }
    *copied = copies;
    return 0;
}

static int copy_known(struct silo_manifest *manifest, const struct silo_known_names *names) {
    struct silo_known_names *copied = &manifest->known;
    struct silo_arena *arena = &manifest->arena;
    return copy_names(arena, names->blob_kinds, &copied->blob_kinds) |
           copy_names(arena, names->launch_options, &copied->launch_options) |
           copy_names(arena, names->checked_kinds, &copied->checked_kinds) |
           copy_names(arena, names->target_kinds, &copied->target_kinds);
}

static int refuse_manifest(const struct silo_reader *reader, int code, const char *problem,
                           silo_error *error) {
    return silo_fail_at(error, code, "manifest", reader->manifest.header.manifest_offset, "%s: %s",
                        reader->name, problem);
}

/* Replaces the stored manifest in `*text` by its decompressed text. */
static int expand_manifest(const struct silo_reader *reader, char **text, size_t *bytes,
                           silo_error *error) {
    const uint8_t *stored = (const uint8_t *)*text;
    char problem[SILO_CODEC_PROBLEM];
    uint64_t raw_bytes, most = reader->manifest.allowed / SILO_TEXT_SHARE;
    if (most > SILO_MAX_MANIFEST_BYTES)
        most = SILO_MAX_MANIFEST_BYTES;
    if (silo_codec_stated(stored, *bytes, &raw_bytes, problem) != 0)
        return refuse_manifest(reader, SILO_ERROR_DAMAGED, problem, error);
    if (raw_bytes > most) {
        snprintf(problem, sizeof problem,
                 "the zstd frame holds %llu bytes where %llu are allowed (file_memory, "
                 "SILO_FILE_BYTES)",
                 (unsigned long long)raw_bytes, (unsigned long long)most);
        return refuse_manifest(reader, SILO_ERROR_TOO_LARGE, problem, error);
    }
    char *raw = malloc((size_t)raw_bytes + 1);
    if (raw == NULL)
        return silo_fail_memory(error);
    const int code = silo_codec_expand(stored, *bytes, (uint8_t *)raw, (size_t)raw_bytes, problem);
    free(*text);
    *text = raw;
    *bytes = (size_t)raw_bytes;
    return code == 0 ? 0 : refuse_manifest(reader, code, problem, error);
}

/* Reads the manifest, verifies its hash and decompresses it. The caller frees `*text`, even if this
 * fails. */
static int read_manifest(const struct silo_reader *reader, char **text, size_t *bytes,
                         silo_error *error) {
    const struct silo_header *header = &reader->manifest.header;
    uint8_t digest[SILO_SHA256_BYTES];
    *bytes = (size_t)header->manifest_bytes;
    *text = malloc(*bytes + 1);
    if (*text == NULL)
        return silo_fail_memory(error);
    /* Copied before hashing: another process could change the mapped file after it was hashed. */
    memcpy(*text, reader->data + header->manifest_offset, *bytes);
    silo_sha256(*text, *bytes, digest);
    if (memcmp(digest, header->manifest_sha256, sizeof digest) != 0)
        return refuse_manifest(reader, SILO_ERROR_DAMAGED,
                               "the manifest is damaged: its sha256 is not the one in the header",
                               error);
    return header->zstd_manifest ? expand_manifest(reader, text, bytes, error) : 0;
}

static int open_manifest(struct silo_reader *reader, silo_error *error) {
    size_t bytes;
    if (read_manifest(reader, &reader->text, &bytes, error) != 0)
        return -1;
    silo_sha256_hex(reader->manifest.header.manifest_sha256, reader->identity);
    return silo_manifest_open(&reader->manifest, reader->text, bytes, error);
}

struct silo_reader *silo_reader_open(const struct silo_reader_source *source, silo_error *error) {
    struct silo_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    if (silo_fork_lock_init(&reader->decoding, error) != 0) {
        free(reader);
        return NULL;
    }
    struct silo_manifest *manifest = &reader->manifest;
    const uint64_t memory = source->file_memory != 0 ? source->file_memory : FILE_MEMORY;
    reader->data = source->data;
    reader->may_change = source->may_change;
    reader->name = copy_text(&manifest->arena, source->name != NULL ? source->name : "bundle");
    manifest->file = reader->name;
    manifest->allowed = memory > UINT64_MAX - source->bytes ? UINT64_MAX : memory + source->bytes;
    if (reader->name == NULL || copy_known(manifest, &source->known) != 0) {
        silo_fail_memory(error);
    } else if (silo_header_read(source->data, source->bytes, reader->name, &manifest->header,
                                error) == 0 &&
               open_manifest(reader, error) == 0) {
        return reader;
    }
    silo_reader_close(reader);
    return NULL;
}

void silo_reader_close(struct silo_reader *reader) {
    if (reader == NULL)
        return;
    silo_arena_free(&reader->manifest.arena);
    silo_fork_lock_destroy(&reader->decoding);
    free(reader->text);
    free(reader);
}

int silo_reader_learn(struct silo_reader *reader, const struct silo_known_names *names,
                      silo_error *error) {
    silo_fork_lock_take(&reader->decoding);
    const int result = copy_known(&reader->manifest, names);
    silo_fork_lock_give(&reader->decoding);
    return result == 0 ? 0 : silo_fail_memory(error);
}

char *silo_reader_text(const struct silo_reader *reader, size_t *bytes, silo_error *error) {
    char *text = NULL;
    if (read_manifest(reader, &text, bytes, error) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- checked on opening ---- */

const char *silo_reader_identity(const struct silo_reader *reader) {
    return reader->identity;
}

const char *silo_reader_name(const struct silo_reader *reader) {
    return reader->name;
}

const struct silo_manifest *silo_reader_manifest(const struct silo_reader *reader) {
    return &reader->manifest;
}

uint32_t silo_reader_blob_count(const struct silo_reader *reader) {
    return reader->manifest.blob_count;
}

const struct silo_blob *silo_reader_blob(const struct silo_reader *reader, uint32_t index) {
    return &reader->manifest.blobs[index];
}

int64_t silo_reader_blob_index(const struct silo_reader *reader, const char *sha256, size_t length,
                               const struct silo_string *kind) {
    return silo_blobs_find(&reader->manifest, sha256, length, kind);
}

uint32_t silo_reader_kernel_count(const struct silo_reader *reader) {
    return reader->manifest.kernel_count;
}

struct silo_string silo_reader_kernel_name(const struct silo_reader *reader, uint32_t index) {
    return reader->manifest.kernels[index].name;
}

int64_t silo_reader_kernel_index(const struct silo_reader *reader, const char *name) {
    return silo_kernels_find(&reader->manifest, name, strlen(name));
}

uint32_t silo_reader_plan_count(const struct silo_reader *reader) {
    return reader->manifest.plan_count;
}

const struct silo_recorded_plan *silo_reader_plan(const struct silo_reader *reader,
                                                  uint32_t index) {
    return index < reader->manifest.plan_count ? &reader->manifest.plans[index] : NULL;
}

/* ---- decoded at the first use ---- */

const struct silo_kernel_info *silo_reader_head(struct silo_reader *reader, uint32_t index,
                                                silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    silo_fork_lock_take(&reader->decoding);
    const struct silo_kernel_info *info = silo_kernel_head(manifest, &decoding, index);
    silo_fork_lock_give(&reader->decoding);
    return info;
}

const void *silo_reader_row(struct silo_reader *reader, int table, uint32_t number,
                            silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    const struct silo_json index = {.type = SILO_JSON_INT, .integer = number};
    silo_fork_lock_take(&reader->decoding);
    const void *row = silo_table_row(&decoding, manifest->tables, table,
                                     SILO_FIELD_MEMBER(NULL, "tables"), &index);
    silo_fork_lock_give(&reader->decoding);
    return row;
}

const struct silo_kernel_info *silo_reader_kernel(struct silo_reader *reader, uint32_t index,
                                                  silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    silo_fork_lock_take(&reader->decoding);
    const struct silo_kernel_info *info = silo_kernel_head(manifest, &decoding, index);
    if (info != NULL && !manifest->kernels[index].grouped &&
        silo_variants_group(manifest, &decoding, index) != 0)
        info = NULL;
    silo_fork_lock_give(&reader->decoding);
    return info;
}

const struct silo_variant *silo_reader_variant(struct silo_reader *reader, uint32_t kernel,
                                               uint32_t number, silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    const struct silo_variant *variant = NULL;
    silo_fork_lock_take(&reader->decoding);
    if (silo_kernel_head(manifest, &decoding, kernel) != NULL)
        variant = silo_variants_get(manifest, &decoding, kernel, number);
    silo_fork_lock_give(&reader->decoding);
    return variant;
}

bool silo_reader_has_config(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                            const struct silo_config *config) {
    silo_fork_lock_take(&reader->decoding);
    const bool has = silo_variants_has_config(&reader->manifest, kernel, number, config);
    silo_fork_lock_give(&reader->decoding);
    return has;
}

bool silo_reader_has_compiler(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                              uint32_t compiler) {
    silo_fork_lock_take(&reader->decoding);
    const bool has = silo_variants_has_compiler(&reader->manifest, kernel, number, compiler);
    silo_fork_lock_give(&reader->decoding);
    return has;
}

static int check_kernel(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t index) {
    return silo_kernel_head(manifest, decoding, index) != NULL
               ? silo_variants_check(manifest, decoding, index)
               : -1;
}

int silo_reader_check_kernel(struct silo_reader *reader, uint32_t index, silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    silo_fork_lock_take(&reader->decoding);
    const int result = check_kernel(manifest, &decoding, index);
    silo_fork_lock_give(&reader->decoding);
    return result;
}

int silo_reader_check(struct silo_reader *reader, silo_error *error) {
    struct silo_manifest *manifest = &reader->manifest;
    const struct silo_decoding decoding = silo_decoding_of(manifest, error);
    silo_fork_lock_take(&reader->decoding);
    int result = silo_tables_check(&decoding, manifest->tables);
    for (uint32_t i = 0; i < manifest->kernel_count && result == 0; i++)
        result = check_kernel(manifest, &decoding, i);
    silo_fork_lock_give(&reader->decoding);
    return result;
}

int silo_reader_host_digest(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                            char digest[65], silo_error *error) {
    const struct silo_variant *decoded = silo_reader_variant(reader, kernel, variant, error);
    if (decoded == NULL)
        return -1;
    /* the lock guards the names that plug-ins define, which silo_reader_learn may replace */
    silo_fork_lock_take(&reader->decoding);
    const int result = silo_host_digest(&reader->manifest, kernel, variant, decoded, digest);
    silo_fork_lock_give(&reader->decoding);
    return result == 0 ? 0 : silo_fail_memory(error);
}

/* ---- blobs ---- */

static int refuse_blob(const struct silo_reader *reader, const struct silo_blob *blob, int code,
                       const char *problem, silo_error *error) {
    char field[128];
    snprintf(field, sizeof field, "blob %.64s %.16s", blob->kind.data, blob->sha256);
    return silo_fail_at(error, code, field, blob->offset, "%s: %s", reader->name, problem);
}

/* Checks that bytes have the size and SHA-256 of a blob. */
static int check_bytes(const struct silo_reader *reader, const struct silo_blob *row,
                       const uint8_t *raw, silo_error *error) {
    uint8_t digest[SILO_SHA256_BYTES];
    char hex[SILO_SHA256_HEX];
    silo_sha256(raw, (size_t)row->raw_bytes, digest);
    silo_sha256_hex(digest, hex);
    return memcmp(hex, row->sha256, sizeof hex) == 0
               ? 0
               : refuse_blob(reader, row, SILO_ERROR_DAMAGED, "damaged: its sha256 differs", error);
}

int silo_reader_allows(const struct silo_reader *reader, uint32_t blob, silo_error *error) {
    const struct silo_blob *row = &reader->manifest.blobs[blob];
    char problem[SILO_CODEC_PROBLEM];
    if (row->raw_bytes <= reader->manifest.allowed)
        return 0;
    snprintf(problem, sizeof problem,
             "%llu MiB in one piece; at most %llu MiB are allowed (file_memory, SILO_FILE_BYTES)",
             (unsigned long long)(row->raw_bytes >> MIB_SHIFT),
             (unsigned long long)(reader->manifest.allowed >> MIB_SHIFT));
    return refuse_blob(reader, row, SILO_ERROR_TOO_LARGE, problem, error);
}

int silo_reader_copy(const struct silo_reader *reader, uint32_t blob, uint8_t *to,
                     silo_error *error) {
    const struct silo_blob *row = &reader->manifest.blobs[blob];
    const uint8_t *stored = reader->data + row->offset;
    char problem[SILO_CODEC_PROBLEM];
    int code = 0;
    /* Copied or decompressed before hashing: the hashed bytes are the ones that the caller gets,
     * even if another process writes to the file. */
    if (row->compressed)
        code = silo_codec_expand(stored, (size_t)row->stored_bytes, to, (size_t)row->raw_bytes,
                                 problem);
    else
        memcpy(to, stored, (size_t)row->raw_bytes);
    return code == 0 ? check_bytes(reader, row, to, error)
                     : refuse_blob(reader, row, code, problem, error);
}

const uint8_t *silo_reader_bytes(struct silo_reader *reader, uint32_t blob, void **owned,
                                 silo_error *error) {
    const struct silo_blob *row = &reader->manifest.blobs[blob];
    *owned = NULL;
    if (silo_reader_allows(reader, blob, error) != 0)
        return NULL;
    if (!row->compressed && !reader->may_change) {
        const uint8_t *raw = reader->data + row->offset;
        return check_bytes(reader, row, raw, error) == 0 ? raw : NULL;
    }
    uint8_t *bytes = malloc((size_t)row->raw_bytes + 1);
    if (bytes == NULL) {
        silo_fail_memory(error);
        return NULL;
    }
    if (silo_reader_copy(reader, blob, bytes, error) != 0) {
        free(bytes);
        return NULL;
    }
    *owned = bytes;
    return bytes;
}
