#include "manifest_kernels.h"

#include "bytes_order.h"
#include "manifest_blobs.h"
#include "manifest_nodes.h"
#include "manifest_rules.h"

enum { MAX_DERIVED = 1 << 12, MAX_GRID_AXES = 3 };

int silo_kernels_open(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_json *node) {
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "kernels");
    if (silo_need_items(decoding, field, node, SILO_MAX_KERNELS) != 0)
        return -1;
    struct silo_kernel_row *rows = silo_decoding_array(decoding, node->count, sizeof *rows);
    if (rows == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        const struct silo_field *name = SILO_FIELD_MEMBER(child, "name");
        if (silo_need_members(decoding, child, &node->items[i], &SILO_KERNEL_LIST,
                              rows[i].members) != 0 ||
            silo_need_name(decoding, name, rows[i].members[SILO_KERNEL_NAME], &rows[i].name) != 0)
            return -1;
        if (i != 0 && silo_text_order(&rows[i - 1].name, &rows[i].name) >= 0)
            return silo_refuse(decoding, name, "kernels are not sorted, or two are called %s",
                               rows[i].name.data);
    }
    manifest->kernels = rows;
    manifest->kernel_count = node->count;
    return 0;
}

int64_t silo_kernels_find(const struct silo_manifest *manifest, const char *name, size_t length) {
    uint32_t low = 0, high = manifest->kernel_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct silo_string *middle_name = &manifest->kernels[middle].name;
        const int order = silo_bytes_order(name, length, middle_name->data, middle_name->length);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* ---- one kernel ---- */

static int decode_grid(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_kernel_info *info) {
    if (node->type == SILO_JSON_NULL)
        return 0;
    if (silo_need_items(decoding, field, node, MAX_GRID_AXES) != 0)
        return -1;
    if (node->count == 0)
        return silo_refuse(decoding, field, "a grid has one to three axes");
    info->grid_axes = node->count;
    for (uint32_t i = 0; i < node->count; i++) {
        info->grid[i] = silo_decode_node(decoding, SILO_FIELD_ITEM(field, i), &node->items[i]);
        if (info->grid[i] == NULL)
            return -1;
    }
    return 0;
}

static int decode_derived(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, struct silo_kernel_info *info) {
    if (silo_need_items(decoding, field, node, MAX_DERIVED) != 0)
        return -1;
    struct silo_derived *derived = silo_decoding_array(decoding, node->count, sizeof *derived);
    if (derived == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        if (silo_need_items(decoding, child, pair, 2) != 0)
            return -1;
        if (pair->count != 2)
            return silo_refuse(decoding, child, "a derived constexpr is a name and an expression");
        if (silo_need_name(decoding, SILO_FIELD_ITEM(child, 0), &pair->items[0],
                           &derived[i].name) != 0)
            return -1;
        derived[i].node = silo_decode_node(decoding, SILO_FIELD_ITEM(child, 1), &pair->items[1]);
        if (derived[i].node == NULL)
            return -1;
    }
    const int repeat = silo_texts_repeat(&derived->name, node->count, sizeof *derived);
    if (repeat != 0)
        return repeat < 0 ? silo_fail_memory(decoding->error)
                          : silo_refuse(decoding, field, "a name occurs twice");
    info->derived = derived;
    info->derived_count = node->count;
    return 0;
}

static bool has_parameter(const struct silo_signature *signature, const struct silo_string *name) {
    for (uint32_t i = 0; i < signature->count; i++) {
        if (silo_text_order(&signature->parameters[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Decodes the names of the parameters whose arrays must be contiguous. */
static int decode_contiguous(const struct silo_decoding *decoding, const struct silo_field *field,
                             const struct silo_json *node, struct silo_kernel_info *info) {
    if (silo_need_names(decoding, field, node, &info->contiguous, &info->contiguous_count) != 0)
        return -1;
    if (info->contiguous_count == 0)
        return silo_refuse(decoding, field, "a list of no arrays is left out");
    for (uint32_t i = 0; i < info->contiguous_count; i++) {
        if (!has_parameter(info->signature, &info->contiguous[i]))
            return silo_refuse(decoding, field, "it names %s, and no such parameter",
                               info->contiguous[i].data);
    }
    return 0;
}

/* Checks the member for the cases or the trials of a kernel, which must be null or the number of a
 * blob of the kind `kind`. */
static int check_document(const struct silo_manifest *manifest,
                          const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *index, const char *kind) {
    if (index->type == SILO_JSON_NULL)
        return 0;
    const int64_t number = silo_blob_number(manifest, decoding, field, index);
    if (number < 0)
        return -1;
    const struct silo_string blob_kind = manifest->blobs[number].kind;
    if (blob_kind.length != strlen(kind) || memcmp(blob_kind.data, kind, blob_kind.length) != 0)
        return silo_refuse(decoding, field, "a blob of kind %s where %s is needed", blob_kind.data,
                           kind);
    return 0;
}

static int decode_head(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                       const struct silo_field *field, const struct silo_kernel_row *row,
                       struct silo_kernel_info *info) {
    const struct silo_json *const *members = row->members;
    info->name = row->name;
    if (decode_grid(decoding, SILO_FIELD_MEMBER(field, "grid"), members[SILO_KERNEL_GRID], info) !=
            0 ||
        silo_need_names(decoding, SILO_FIELD_MEMBER(field, "key"), members[SILO_KERNEL_KEY],
                        &info->key, &info->key_count) != 0)
        return -1;
    info->signature =
        silo_table_row(decoding, manifest->tables, SILO_TABLE_SIGNATURES,
                       SILO_FIELD_MEMBER(field, "signature"), members[SILO_KERNEL_SIGNATURE]);
    if (info->signature == NULL ||
        silo_need_names(decoding, SILO_FIELD_MEMBER(field, "config_names"),
                        members[SILO_KERNEL_CONFIG_NAMES], &info->config_names,
                        &info->config_name_count) != 0 ||
        decode_derived(decoding, SILO_FIELD_MEMBER(field, "derived"), members[SILO_KERNEL_DERIVED],
                       info) != 0 ||
        silo_decode_rules(manifest, decoding, SILO_FIELD_MEMBER(field, "rules"),
                          members[SILO_KERNEL_RULES], info) != 0 ||
        check_document(manifest, decoding, SILO_FIELD_MEMBER(field, "cases"),
                       members[SILO_KERNEL_CASES], "cases") != 0 ||
        check_document(manifest, decoding, SILO_FIELD_MEMBER(field, "trials"),
                       members[SILO_KERNEL_TRIALS], "trials") != 0)
        return -1;
    if (silo_check_members(decoding, field, &SILO_KERNEL_LIST, members) != 0)
        return -1;
    info->kind = silo_member_text(members[SILO_KERNEL_KIND]);
    if (members[SILO_KERNEL_CONTIGUOUS] != NULL &&
        decode_contiguous(decoding, SILO_FIELD_MEMBER(field, "contiguous"),
                          members[SILO_KERNEL_CONTIGUOUS], info) != 0)
        return -1;
    if (silo_need_items(decoding, SILO_FIELD_MEMBER(field, "variants"),
                        members[SILO_KERNEL_VARIANTS], SILO_MAX_VARIANTS) != 0)
        return -1;
    info->variant_count = members[SILO_KERNEL_VARIANTS]->count;
    return 0;
}

struct silo_kernel_info *silo_kernel_head(struct silo_manifest *manifest,
                                          const struct silo_decoding *decoding, uint32_t number) {
    struct silo_kernel_row *row = &manifest->kernels[number];
    if (row->info != NULL)
        return row->info;
    const struct silo_field *kernels = SILO_FIELD_MEMBER(NULL, "kernels");
    struct silo_kernel_info *info = silo_decoding_array(decoding, 1, sizeof *info);
    if (info == NULL ||
        decode_head(manifest, decoding, SILO_FIELD_ITEM(kernels, number), row, info) != 0)
        return NULL;
    row->info = info;
    return info;
}
