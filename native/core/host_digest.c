#include "host_digest.h"

/* Returns a row of a table as JSON. The digest is computed from whole rows as they were read:
 * decoding has checked that they are in canonical form, so that no member that decides how code is
 * called is left out. */

static const struct silo_json *row(const struct silo_manifest *manifest, int table,
                                   const struct silo_json *object, const char *member) {
    return &manifest->tables[table].rows[silo_json_member(object, member)->integer];
}

static void put(struct silo_json_text *text, const char *prefix, const struct silo_json *node) {
    silo_json_put_word(text, prefix);
    silo_json_put(text, node);
}

static void put_text(struct silo_json_text *text, const char *prefix, const char *value) {
    silo_json_put_word(text, prefix);
    silo_json_put_text(text, value, strlen(value));
}

/* Computes the sha256 of a text and frees the text. */
static int finish(struct silo_json_text *text, char digest[SILO_SHA256_HEX]) {
    uint8_t bytes[SILO_SHA256_BYTES];
    const bool failed = text->failed;
    if (!failed) {
        silo_sha256(text->data, text->bytes, bytes);
        silo_sha256_hex(bytes, digest);
    }
    silo_json_text_free(text);
    return failed ? -1 : 0;
}

/* Computes the digest of the data that decides how calls of a kernel are made, whichever variant
 * serves them. */
static int calls_digest(const struct silo_manifest *manifest, const struct silo_kernel_row *kernel,
                        char digest[SILO_SHA256_HEX]) {
    const struct silo_json *const *members = kernel->members;
    const struct silo_table *signatures = &manifest->tables[SILO_TABLE_SIGNATURES];
    struct silo_json_text text = {0};
    put(&text, "[\"calls/1\",{\"config_names\":", members[SILO_KERNEL_CONFIG_NAMES]);
    put(&text, ",\"derived\":", members[SILO_KERNEL_DERIVED]);
    put(&text, ",\"grid\":", members[SILO_KERNEL_GRID]);
    put(&text, ",\"signature\":", &signatures->rows[members[SILO_KERNEL_SIGNATURE]->integer]);
    silo_json_put_word(&text, "}]");
    return finish(&text, digest);
}

int silo_host_digest(const struct silo_manifest *manifest, uint32_t kernel, uint32_t number,
                     const struct silo_variant *variant, char digest[SILO_SHA256_HEX]) {
    const struct silo_kernel_row *of = &manifest->kernels[kernel];
    const struct silo_json *node = &of->members[SILO_KERNEL_VARIANTS]->items[number];
    const struct silo_blob *blob = &manifest->blobs[variant->blob];
    const char *checked = "";
    /* The loop runs backwards, so that of several sidecars of a kind the first one counts. */
    for (uint32_t i = variant->sidecar_count; i-- != 0;) {
        const struct silo_blob *sidecar = &manifest->blobs[variant->sidecars[i]];
        if (silo_known_checked_text(&manifest->known, sidecar->kind.data, sidecar->kind.length))
            checked = sidecar->sha256;
    }
    char calls[SILO_SHA256_HEX];
    if (calls_digest(manifest, of, calls) != 0)
        return -1;
    struct silo_json_text text = {0};
    put_text(&text, "[\"host-code/1\",{\"blob\":", blob->sha256);
    put_text(&text, ",\"calls\":[", calls);
    put(&text, ",", row(manifest, SILO_TABLE_CONFIGS, node, "config"));
    put_text(&text, "],\"kind\":", blob->kind.data);
    put(&text, ",\"launch\":", row(manifest, SILO_TABLE_LAUNCHES, node, "launch"));
    put(&text, ",\"signature\":", row(manifest, SILO_TABLE_SIGNATURES, node, "signature"));
    put(&text,
        ",\"specialization\":", row(manifest, SILO_TABLE_SPECIALIZATIONS, node, "specialization"));
    put_text(&text, ",\"text\":", checked);
    silo_json_put_word(&text, "}]");
    return finish(&text, digest);
}

int silo_host_plan_digest(const struct silo_manifest *manifest, uint32_t plan,
                          const char (*codes)[SILO_SHA256_HEX], size_t count,
                          struct silo_json_text *text, char sha256[SILO_SHA256_HEX],
                          char digest[SILO_SHA256_HEX]) {
    uint8_t bytes[SILO_SHA256_BYTES];
    silo_json_put(text, &silo_json_member(manifest->top, "plans")->items[plan]);
    if (text->failed)
        return -1;
    silo_sha256(text->data, text->bytes, bytes);
    silo_sha256_hex(bytes, sha256);
    struct silo_json_text whole = {0};
    silo_json_put_word(&whole, "[\"host-plan/1\",{\"codes\":[");
    for (size_t i = 0; i < count; i++)
        put_text(&whole, i > 0 ? "," : "", codes[i]);
    put_text(&whole, "],\"plan\":", sha256);
    silo_json_put_word(&whole, "}]");
    return finish(&whole, digest);
}
