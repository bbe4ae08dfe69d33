#include "manifest_variants.h"

#include "manifest_blobs.h"
#include "manifest_signatures.h"
#include "manifest_values.h"

#include <stdlib.h>

/* The members of a variant that are row numbers, and their tables. */
static const struct {
    uint8_t member, table;
} ROWS[] = {
    {SILO_VARIANT_COMPILER, SILO_TABLE_COMPILERS},
    {SILO_VARIANT_CONFIG, SILO_TABLE_CONFIGS},
    {SILO_VARIANT_LAUNCH, SILO_TABLE_LAUNCHES},
    {SILO_VARIANT_REASON, SILO_TABLE_REASONS},
    {SILO_VARIANT_SIGNATURE, SILO_TABLE_SIGNATURES},
    {SILO_VARIANT_SOURCE, SILO_TABLE_SOURCES},
    {SILO_VARIANT_SPECIALIZATION, SILO_TABLE_SPECIALIZATIONS},
    {SILO_VARIANT_TARGET, SILO_TABLE_TARGETS},
};

static const struct silo_json *row_of(const struct silo_manifest *manifest, uint32_t kernel,
                                      uint32_t number) {
    return &manifest->kernels[kernel].members[SILO_KERNEL_VARIANTS]->items[number];
}

/* Returns the value of a row's member, or NULL. Writers sort the members, so that the first
 * position tried is usually right. */
static const struct silo_json *member(const struct silo_json *row, int which) {
    if (row->type != SILO_JSON_OBJECT)
        return NULL;
    const bool sorted =
        row->count == SILO_VARIANT_LIST.required && which < SILO_VARIANT_LIST.required;
    if (sorted && silo_json_is(&row->items[2 * which], SILO_VARIANT_NAMES[which].name))
        return &row->items[2 * which + 1];
    return silo_json_member(row, SILO_VARIANT_NAMES[which].name);
}

/* Whether a specialization has extents for this name (binary search: extents are sorted by name).
 */
static bool has_extents(const struct silo_specialization *specialization,
                        const struct silo_string *name) {
    uint32_t low = 0, high = specialization->extent_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = silo_text_order(name, &specialization->extents[middle].name);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

/* Returns the first name of a specialization's extents that no parameter has. The caller knows that
 * there is one. */
static const struct silo_string *first_unknown(const struct silo_specialization *specialization,
                                               const struct silo_signature *signature) {
    for (uint32_t i = 0; i < specialization->extent_count; i++) {
        const struct silo_string *name = &specialization->extents[i].name;
        bool is_parameter = false;
        for (uint32_t j = 0; j < signature->count && !is_parameter; j++)
            is_parameter = silo_text_order(&signature->parameters[j].name, name) == 0;
        if (!is_parameter)
            return name;
    }
    return &specialization->extents[0].name;
}

/* Returns a row of the specializations table. Each of its extents must have the name of a
 * parameter, because launchers put the extents of parameters into their keys. */
static const struct silo_specialization *specialization_of(struct silo_manifest *manifest,
                                                           const struct silo_decoding *decoding,
                                                           const struct silo_field *field,
                                                           const struct silo_json *index,
                                                           const struct silo_signature *signature) {
    const struct silo_specialization *special =
        silo_table_row(decoding, manifest->tables, SILO_TABLE_SPECIALIZATIONS, field, index);
    if (special == NULL || special->extent_count == 0)
        return special;
    /* Number of parameters with extents. Names are unique, so that an equal number of extents means
     * that each of them has a parameter. */
    uint32_t parameter_count = 0;
    for (uint32_t i = 0; i < signature->count; i++)
        parameter_count += has_extents(special, &signature->parameters[i].name);
    if (parameter_count != special->extent_count) {
        silo_refuse(decoding, field, "it has extents of %s, and no such parameter",
                    first_unknown(special, signature)->data);
        return NULL;
    }
    return special;
}

/* ---- one variant ---- */

static int decode_tables(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                         const struct silo_field *field, const struct silo_json *const *members,
                         struct silo_variant *variant) {
    const void *rows[SILO_VARIANT_MEMBERS] = {NULL};
    /* In the same order as in Python, so that C and Python report the same fault first. */
    static const uint8_t order[] = {SILO_VARIANT_SOURCE,         SILO_VARIANT_SIGNATURE,
                                    SILO_VARIANT_SPECIALIZATION, SILO_VARIANT_CONFIG,
                                    SILO_VARIANT_TARGET,         SILO_VARIANT_LAUNCH};
    for (size_t i = 0; i < sizeof order; i++) {
        const int which = order[i];
        const struct silo_field *child = SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[which].name);
        if (which == SILO_VARIANT_SPECIALIZATION) {
            rows[which] = specialization_of(manifest, decoding, child, members[which],
                                            rows[SILO_VARIANT_SIGNATURE]);
        } else {
            size_t row = 0;
            while (ROWS[row].member != which)
                row++;
            rows[which] =
                silo_table_row(decoding, manifest->tables, ROWS[row].table, child, members[which]);
        }
        if (rows[which] == NULL)
            return -1;
    }
    const struct silo_source_row *source = rows[SILO_VARIANT_SOURCE];
    variant->kernel = source->kernel;
    variant->source = source->fingerprint;
    variant->signature = rows[SILO_VARIANT_SIGNATURE];
    variant->specialization = rows[SILO_VARIANT_SPECIALIZATION];
    variant->config = rows[SILO_VARIANT_CONFIG];
    variant->target = rows[SILO_VARIANT_TARGET];
    variant->launch = rows[SILO_VARIANT_LAUNCH];
    return 0;
}

static int decode_blobs(const struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        const struct silo_field *field, const struct silo_json *const *members,
                        struct silo_variant *variant) {
    const struct silo_field *sidecars_field =
        SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_SIDECARS].name);
    const int64_t blob = silo_blob_number(
        manifest, decoding, SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_BLOB].name),
        members[SILO_VARIANT_BLOB]);
    if (blob < 0)
        return -1;
    variant->blob = (uint32_t)blob;
    variant->sidecar_count = members[SILO_VARIANT_SIDECARS]->count;
    uint32_t *sidecars = silo_decoding_array(decoding, variant->sidecar_count, sizeof *sidecars);
    if (sidecars == NULL)
        return -1;
    for (uint32_t i = 0; i < variant->sidecar_count; i++) {
        const int64_t number = silo_blob_number(manifest, decoding, sidecars_field,
                                                &members[SILO_VARIANT_SIDECARS]->items[i]);
        if (number < 0)
            return -1;
        sidecars[i] = (uint32_t)number;
    }
    variant->sidecars = sidecars;
    return 0;
}

static int decode(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                  const struct silo_field *field, const struct silo_json *node,
                  const struct silo_signature *parameters, struct silo_variant *variant) {
    static const char *const bases[] = {"measured", "heuristic"};
    const struct silo_json *members[SILO_VARIANT_MEMBERS] = {NULL};
    uint8_t basis;
    if (silo_need_members(decoding, field, node, &SILO_VARIANT_LIST, members) != 0 ||
        silo_need_items(decoding,
                        SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_SIDECARS].name),
                        members[SILO_VARIANT_SIDECARS], SILO_MAX_SIDECARS) != 0 ||
        silo_need_word(decoding,
                       SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_BASIS].name),
                       members[SILO_VARIANT_BASIS], bases, 2, "a basis", &basis) != 0 ||
        decode_tables(manifest, decoding, field, members, variant) != 0 ||
        decode_blobs(manifest, decoding, field, members, variant) != 0)
        return -1;
    const struct silo_string *compiler =
        silo_table_row(decoding, manifest->tables, SILO_TABLE_COMPILERS,
                       SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_COMPILER].name),
                       members[SILO_VARIANT_COMPILER]);
    if (compiler == NULL || silo_check_members(decoding, field, &SILO_VARIANT_LIST, members) != 0)
        return -1;
    variant->compiler = *compiler;
    variant->job = silo_member_text(members[SILO_VARIANT_JOB]);
    variant->hidden_memory = silo_member_text(members[SILO_VARIANT_HIDDEN_MEMORY]);
    if (!silo_same_parameters(variant->signature, parameters))
        return silo_refuse(
            decoding, SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_SIGNATURE].name),
            "it has other parameters than the kernel");
    return silo_table_row(decoding, manifest->tables, SILO_TABLE_REASONS,
                          SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_REASON].name),
                          members[SILO_VARIANT_REASON]) != NULL
               ? 0
               : -1;
}

/* Adds the lengths of a variant's table rows to `*length`, and refuses a sum above the limit for a
 * kernel's decoded variants (SILO_EXPANDED_SHARE). The variant was checked by the caller. */
static int expand(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                  const struct silo_field *field, const struct silo_json *node, uint64_t *length) {
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        *length += silo_table_length(&manifest->tables[ROWS[i].table],
                                     (uint32_t)member(node, ROWS[i].member)->integer);
    const uint64_t most = manifest->allowed / SILO_EXPANDED_SHARE;
    if (*length > most)
        return silo_refuse_large(decoding, field,
                                 "the table rows of the variants up to here are %llu characters "
                                 "long when written out for each; at most %llu are allowed "
                                 "(file_memory, SILO_FILE_BYTES)",
                                 (unsigned long long)*length, (unsigned long long)most);
    return 0;
}

/* Allocates the array for a kernel's decoded variants, if it is not there yet. */
static int make_room(const struct silo_decoding *decoding, struct silo_kernel_row *row) {
    if (row->variants == NULL)
        row->variants =
            silo_decoding_array(decoding, row->info->variant_count, sizeof *row->variants);
    return row->variants != NULL ? 0 : -1;
}

static const struct silo_variant *new_variant(struct silo_manifest *manifest,
                                              const struct silo_decoding *decoding,
                                              const struct silo_field *field, uint32_t kernel,
                                              uint32_t number) {
    struct silo_variant *variant = silo_decoding_array(decoding, 1, sizeof *variant);
    if (variant == NULL || decode(manifest, decoding, field, row_of(manifest, kernel, number),
                                  manifest->kernels[kernel].info->signature, variant) != 0)
        return NULL;
    return variant;
}

const struct silo_variant *silo_variants_get(struct silo_manifest *manifest,
                                             const struct silo_decoding *decoding, uint32_t kernel,
                                             uint32_t number) {
    struct silo_kernel_row *row = &manifest->kernels[kernel];
    const struct silo_field *kernels = SILO_FIELD_MEMBER(NULL, "kernels");
    const struct silo_field *variants =
        SILO_FIELD_MEMBER(SILO_FIELD_ITEM(kernels, kernel), "variants");
    const struct silo_field *field = SILO_FIELD_ITEM(variants, number);
    if (make_room(decoding, row) != 0)
        return NULL;
    if (row->variants[number] != NULL)
        return row->variants[number];
    const struct silo_variant *variant = new_variant(manifest, decoding, field, kernel, number);
    uint64_t length = row->expanded;
    if (variant == NULL ||
        expand(manifest, decoding, field, row_of(manifest, kernel, number), &length) != 0)
        return NULL;
    row->expanded = length;
    row->variants[number] = variant;
    return variant;
}

/* ---- checking and grouping all variants ---- */

/* Row numbers of a variant in the tables: either those that decide the compiled code, or those that
 * all variants of a group share. */
struct identity {
    uint32_t rows[6];
};

/* A hash table with open addressing that gives consecutive numbers to different identities.
 * `places` holds these numbers plus 1, or 0 in a free place. */
struct identities {
    struct identity *all;
    uint32_t *places;
    uint32_t count, mask;
};

static int identities_begin(struct identities *set, uint32_t most, silo_error *error) {
    uint32_t room = 4;
    while (room < 2 * most)
        room *= 2;
    *set = (struct identities){.all = calloc((size_t)most + 1, sizeof *set->all),
                               .places = calloc(room, sizeof *set->places),
                               .mask = room - 1};
    return set->all != NULL && set->places != NULL ? 0 : silo_fail_memory(error);
}

static void identities_end(struct identities *set) {
    free(set->all);
    free(set->places);
}

/* Returns the number of an identity; a new identity gets the next number. */
static uint32_t identities_add(struct identities *set, const struct identity *identity) {
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof identity->rows / sizeof *identity->rows; i++) {
        hash = (hash ^ identity->rows[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    for (uint32_t slot = (uint32_t)hash & set->mask;; slot = (slot + 1) & set->mask) {
        const uint32_t number = set->places[slot];
        if (number == 0) {
            set->all[set->count] = *identity;
            set->places[slot] = ++set->count;
            return set->count - 1;
        }
        if (memcmp(&set->all[number - 1], identity, sizeof *identity) == 0)
            return number - 1;
    }
}

int silo_variants_check(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel) {
    static const uint8_t identifying[] = {SILO_VARIANT_SOURCE,         SILO_VARIANT_SIGNATURE,
                                          SILO_VARIANT_SPECIALIZATION, SILO_VARIANT_CONFIG,
                                          SILO_VARIANT_TARGET,         SILO_VARIANT_COMPILER};
    struct silo_kernel_row *row = &manifest->kernels[kernel];
    const struct silo_field *kernels = SILO_FIELD_MEMBER(NULL, "kernels");
    const struct silo_field *variants =
        SILO_FIELD_MEMBER(SILO_FIELD_ITEM(kernels, kernel), "variants");
    const uint32_t count = row->info->variant_count;
    struct identities identities;
    if (make_room(decoding, row) != 0)
        return -1;
    int result = identities_begin(&identities, count, decoding->error);
    uint64_t length = 0; /* total for all variants, whether decoded before or not */
    for (uint32_t i = 0; i < count && result == 0; i++) {
        const struct silo_field *field = SILO_FIELD_ITEM(variants, i);
        const struct silo_json *node = row_of(manifest, kernel, i);
        const struct silo_variant *variant = row->variants[i];
        if (variant == NULL)
            variant = new_variant(manifest, decoding, field, kernel, i);
        result = variant != NULL ? expand(manifest, decoding, field, node, &length) : -1;
        struct identity identity = {{0}};
        for (size_t j = 0; j < sizeof identifying && result == 0; j++)
            identity.rows[j] = (uint32_t)member(node, identifying[j])->integer;
        if (result == 0 && identities_add(&identities, &identity) != i)
            result = silo_refuse(decoding, field, "a variant occurs twice");
        if (result == 0)
            row->variants[i] = variant;
    }
    identities_end(&identities);
    return result;
}

bool silo_variants_has_config(const struct silo_manifest *manifest, uint32_t kernel,
                              uint32_t number, const struct silo_config *config) {
    const struct silo_json *index = member(row_of(manifest, kernel, number), SILO_VARIANT_CONFIG);
    const struct silo_table *configs = &manifest->tables[SILO_TABLE_CONFIGS];
    if (index == NULL || index->type != SILO_JSON_INT || index->integer < 0 ||
        index->integer >= configs->count)
        return false;
    return configs->values[index->integer] == config ||
           silo_json_is_config(&configs->rows[index->integer], config);
}

bool silo_variants_has_compiler(const struct silo_manifest *manifest, uint32_t kernel,
                                uint32_t number, uint32_t compiler) {
    const struct silo_json *index = member(row_of(manifest, kernel, number), SILO_VARIANT_COMPILER);
    return index != NULL && index->type == SILO_JSON_INT && index->integer == compiler;
}

/* ---- groups ---- */

/* Whether a row has exactly the members of a variant. */
static bool has_members(const struct silo_decoding *decoding, const struct silo_json *node) {
    const struct silo_member_list *list = &SILO_VARIANT_LIST;
    uint32_t used = 0;
    if (node->type != SILO_JSON_OBJECT)
        return false;
    for (int i = 0; i < list->count; i++) {
        const bool is_present =
            list->members[i].since <= decoding->minor && member(node, i) != NULL;
        if (!is_present && i < list->required)
            return false;
        used += is_present;
    }
    return used == node->count;
}

/* Reads and checks the row numbers by which a variant is grouped. */
static int read_common(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                       const struct silo_field *field, const struct silo_json *node,
                       const struct silo_signature *parameters, struct identity *common) {
    static const uint8_t indices[] = {SILO_VARIANT_TARGET, SILO_VARIANT_SIGNATURE,
                                      SILO_VARIANT_SPECIALIZATION, SILO_VARIANT_BLOB};
    const struct silo_table *tables = manifest->tables;
    const uint32_t rows[] = {tables[SILO_TABLE_TARGETS].count, tables[SILO_TABLE_SIGNATURES].count,
                             tables[SILO_TABLE_SPECIALIZATIONS].count, manifest->blob_count};
    bool right = has_members(decoding, node);
    *common = (struct identity){{0}};
    for (size_t i = 0; right && i < sizeof indices; i++) {
        const struct silo_json *index = member(node, indices[i]);
        right = index->type == SILO_JSON_INT && index->integer >= 0 && index->integer < rows[i];
        common->rows[i] = right ? (uint32_t)index->integer : 0;
    }
    if (!right) {
        /* Decode the whole variant to report the fault. */
        struct silo_variant unused;
        if (decode(manifest, decoding, field, node, parameters, &unused) == 0)
            silo_refuse(decoding, field, "not a variant");
        return -1;
    }
    common->rows[3] = manifest->blob_kinds[common->rows[3]];
    return 0;
}

/* Fills a group from its first variant. */
static int make_group(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_field *field, const struct silo_json *node,
                      const struct identity *common, struct silo_group *group) {
    const struct silo_field *specialization =
        SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_SPECIALIZATION].name);
    group->target =
        silo_table_row(decoding, manifest->tables, SILO_TABLE_TARGETS,
                       SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_TARGET].name),
                       member(node, SILO_VARIANT_TARGET));
    if (group->target == NULL)
        return -1;
    group->blob_kind = manifest->blobs[common->rows[3]].kind;
    group->signature =
        silo_table_row(decoding, manifest->tables, SILO_TABLE_SIGNATURES,
                       SILO_FIELD_MEMBER(field, SILO_VARIANT_NAMES[SILO_VARIANT_SIGNATURE].name),
                       member(node, SILO_VARIANT_SIGNATURE));
    if (group->signature == NULL)
        return -1;
    group->specialization =
        specialization_of(manifest, decoding, specialization,
                          member(node, SILO_VARIANT_SPECIALIZATION), group->signature);
    return group->specialization != NULL ? 0 : -1;
}

int silo_variants_group(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                        uint32_t kernel) {
    struct silo_kernel_row *row = &manifest->kernels[kernel];
    const uint32_t count = row->info->variant_count;
    const struct silo_field *kernels = SILO_FIELD_MEMBER(NULL, "kernels");
    const struct silo_field *variants =
        SILO_FIELD_MEMBER(SILO_FIELD_ITEM(kernels, kernel), "variants");
    struct identities identities;
    int result = identities_begin(&identities, count, decoding->error);
    uint32_t *groups_of = calloc((size_t)count + 1, sizeof *groups_of);
    /* for each group, where its next variant's number goes */
    uint32_t **next = calloc((size_t)count + 1, sizeof *next);
    uint32_t *numbers = silo_decoding_array(decoding, count, sizeof *numbers);
    if (groups_of == NULL || next == NULL)
        result = silo_fail_memory(decoding->error);
    if (numbers == NULL)
        result = -1;
    for (uint32_t i = 0; i < count && result == 0; i++) {
        struct identity common;
        result = read_common(manifest, decoding, SILO_FIELD_ITEM(variants, i),
                             row_of(manifest, kernel, i), row->info->signature, &common);
        if (result == 0)
            groups_of[i] = identities_add(&identities, &common);
    }
    struct silo_group *groups =
        result == 0 ? silo_decoding_array(decoding, identities.count, sizeof *groups) : NULL;
    if (groups == NULL)
        result = -1;
    /* Count the variants of each group, which get consecutive places in `numbers`. */
    for (uint32_t i = 0; i < count && result == 0; i++)
        groups[groups_of[i]].count++;
    for (uint32_t i = 0; i < identities.count && result == 0; i++) {
        groups[i].numbers = next[i] = numbers;
        numbers += groups[i].count;
    }
    for (uint32_t i = 0; i < count && result == 0; i++) {
        struct silo_group *group = &groups[groups_of[i]];
        if (next[groups_of[i]] == group->numbers)
            result = make_group(manifest, decoding, SILO_FIELD_ITEM(variants, i),
                                row_of(manifest, kernel, i), &identities.all[groups_of[i]], group);
        *next[groups_of[i]]++ = i;
    }
    if (result == 0) {
        row->info->groups = groups;
        row->info->group_count = identities.count;
        row->grouped = true;
    }
    free(groups_of);
    free(next);
    identities_end(&identities);
    return result;
}
