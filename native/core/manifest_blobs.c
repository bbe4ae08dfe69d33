#include "manifest_blobs.h"

/* The positions of the values in a row of the blob table. */
enum { SHA256, KIND, RAW_BYTES, CODEC, OFFSET, STORED_BYTES, COLUMNS };

static bool is_sha256(const struct silo_json *node) {
    if (node->type != SILO_JSON_TEXT || node->count != SILO_SHA256_HEX - 1)
        return false;
    for (uint32_t i = 0; i < node->count; i++) {
        const char c = node->text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

/* Decodes a row. `previous` is the preceding row, or NULL for the first. */
static int read_row(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, uint64_t expected,
                    const struct silo_blob *previous, struct silo_blob *blob) {
    if (node->type != SILO_JSON_LIST || node->count != COLUMNS)
        return silo_refuse(decoding, field, "a blob is a list of six");
    const struct silo_json *row = node->items, *kind = &row[KIND];
    if (!is_sha256(&row[SHA256]))
        return silo_refuse(decoding, SILO_FIELD_MEMBER(field, "sha256"),
                           "not a sha256 in lower-case hex");
    memcpy(blob->sha256, row[SHA256].text, sizeof blob->sha256); /* including the zero at its end */
    if (kind->type != SILO_JSON_TEXT ||
        !((silo_known_document(kind->text, kind->count) &&
           (decoding->minor >= SILO_TOP_ATTACHMENTS_SINCE || !silo_json_is(kind, "file"))) ||
          silo_known_blob_kind(decoding->known, kind->text, kind->count)))
        return silo_refuse(decoding, SILO_FIELD_MEMBER(field, "kind"),
                           "unknown kind %s: no compiler that is installed here makes it",
                           kind->type == SILO_JSON_TEXT ? kind->text : silo_json_type_name(kind));
    blob->kind = (struct silo_string){kind->text, kind->count};
    blob->compressed = silo_json_is(&row[CODEC], "zstd");
    if (!blob->compressed && !silo_json_is(&row[CODEC], "raw"))
        return silo_refuse(decoding, SILO_FIELD_MEMBER(field, "codec"), "unknown codec");
    int64_t raw, stored, offset;
    if (silo_need_integer(decoding, SILO_FIELD_MEMBER(field, "raw_bytes"), &row[RAW_BYTES], 0,
                          SILO_MAX_BLOB_BYTES, &raw) != 0)
        return -1;
    const struct silo_field *stored_field = SILO_FIELD_MEMBER(field, "stored_bytes");
    if (silo_need_integer(decoding, stored_field, &row[STORED_BYTES], 0, INT64_MAX, &stored) != 0)
        return -1;
    if (blob->compressed ? stored == 0 || stored >= raw : stored != raw)
        return silo_refuse(decoding, stored_field, "%lld stored bytes for %lld as %s",
                           (long long)stored, (long long)raw, blob->compressed ? "zstd" : "raw");
    if (blob->compressed && !silo_believed((uint64_t)raw, (uint64_t)stored))
        return silo_refuse(decoding, SILO_FIELD_MEMBER(field, "raw_bytes"),
                           "%lld bytes of %lld stored; what shrinks more than %d times is stored "
                           "raw",
                           (long long)raw, (long long)stored, SILO_MAX_RATIO);
    const struct silo_field *offset_field = SILO_FIELD_MEMBER(field, "offset");
    if (silo_need_integer(decoding, offset_field, &row[OFFSET], 0, INT64_MAX, &offset) != 0)
        return -1;
    if ((uint64_t)offset != expected)
        return silo_refuse(decoding, offset_field, "the blob begins at %lld where %llu is next",
                           (long long)offset, (unsigned long long)expected);
    blob->raw_bytes = (uint64_t)raw;
    blob->stored_bytes = (uint64_t)stored;
    blob->offset = expected;
    if (previous != NULL) {
        const int order = silo_text_order(&previous->kind, &blob->kind);
        if (order > 0 || (order == 0 && strcmp(previous->sha256, blob->sha256) >= 0))
            return silo_refuse(decoding, field,
                               "blobs are not sorted by kind and sha256, or one occurs twice");
    }
    return 0;
}

int silo_blobs_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                    const struct silo_json *node) {
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "blobs");
    if (silo_need_items(decoding, field, node, SILO_MAX_BLOBS) != 0)
        return -1;
    struct silo_blob *blobs = silo_decoding_array(decoding, node->count, sizeof *blobs);
    uint32_t *kinds = silo_decoding_array(decoding, node->count, sizeof *kinds);
    if (blobs == NULL || kinds == NULL)
        return -1;
    uint64_t expected = SILO_HEADER_BYTES;
    for (uint32_t i = 0; i < node->count; i++) {
        if (read_row(decoding, SILO_FIELD_ITEM(field, i), &node->items[i], expected,
                     i != 0 ? &blobs[i - 1] : NULL, &blobs[i]) != 0)
            return -1;
        expected = silo_aligned(blobs[i].offset + blobs[i].stored_bytes);
        const bool same = i != 0 && silo_text_order(&blobs[i - 1].kind, &blobs[i].kind) == 0;
        kinds[i] = same ? kinds[i - 1] : i;
    }
    /* With this check, and because blobs are adjacent, every blob lies within the file. */
    if (expected != manifest->header.manifest_offset)
        return silo_refuse(decoding, field, "the blobs end at %llu, the manifest begins at %llu",
                           (unsigned long long)expected,
                           (unsigned long long)manifest->header.manifest_offset);
    manifest->blobs = blobs;
    manifest->blob_kinds = kinds;
    manifest->blob_count = node->count;
    return 0;
}

/* Returns the number after the last blob of the same kind as blob `first`. */
static uint32_t kind_end(const struct silo_manifest *manifest, uint32_t first) {
    uint32_t low = first, high = manifest->blob_count; /* invariant: blob `low` is of this kind */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (manifest->blob_kinds[middle] == first)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

int64_t silo_blobs_find(const struct silo_manifest *manifest, const char *sha256, size_t length,
                        const struct silo_string *kind) {
    if (length != SILO_SHA256_HEX - 1)
        return -1;
    /* The table is sorted by kind, then by sha256. */
    for (uint32_t first = 0; first < manifest->blob_count;) {
        const uint32_t end = kind_end(manifest, first);
        const bool is_match =
            kind == NULL || silo_text_order(&manifest->blobs[first].kind, kind) == 0;
        uint32_t low = first, high = is_match ? end : first;
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            const int order = memcmp(sha256, manifest->blobs[middle].sha256, length);
            if (order == 0)
                return middle;
            if (order < 0)
                high = middle;
            else
                low = middle + 1;
        }
        first = end;
    }
    return -1;
}

int64_t silo_blob_number(const struct silo_manifest *manifest, const struct silo_decoding *decoding,
                         const struct silo_field *field, const struct silo_json *index) {
    int64_t number;
    if (silo_need_integer(decoding, field, index, 0, (int64_t)manifest->blob_count - 1, &number) !=
        0)
        return -1;
    return number;
}
