#include "manifest_exact.h"

#include "json_text.h"

/* The members of the object that describes the wanted variant. */
struct variant_description {
    const struct silo_json *source, *target, *types, *facts, *constants, *options;
};

/* Returns the value of a row's member; NULL if the row lacks it or is not an object. */
static const struct silo_json *member(const struct silo_json *row, const char *name) {
    return row != NULL && row->type == SILO_JSON_OBJECT ? silo_json_member(row, name) : NULL;
}

/* Returns the row of a table with the number `index`, or NULL. */
static const struct silo_json *row_at(const struct silo_manifest *manifest, int kind,
                                      const struct silo_json *index) {
    const struct silo_table *table = &manifest->tables[kind];
    if (index == NULL || index->type != SILO_JSON_INT || index->integer < 0 ||
        index->integer >= table->count)
        return NULL;
    return &table->rows[index->integer];
}

static bool same(const struct silo_json *left, const struct silo_json *right) {
    return left != NULL && right != NULL && silo_json_equal(left, right);
}

/* Whether a parameter has the wanted name and, with `types`, the wanted kind and dtype. */
static bool is_parameter(const struct silo_json *parameter, const struct silo_json *expected,
                         bool types) {
    static const struct silo_json null = {.type = SILO_JSON_NULL};
    const struct silo_json *dtype = member(parameter, "dtype");
    return same(member(parameter, "name"), &expected->items[0]) &&
           (!types || (same(member(parameter, "kind"), &expected->items[1]) &&
                       same(dtype != NULL ? dtype : &null, &expected->items[2])));
}

static bool has_parameters(const struct silo_json *signature, const struct silo_json *expected,
                           bool types) {
    bool has = signature != NULL && signature->type == SILO_JSON_LIST &&
               signature->count == expected->count;
    for (uint32_t i = 0; has && i < expected->count; i++)
        has = is_parameter(&signature->items[i], &expected->items[i], types);
    return has;
}

/* Returns the value of the last pair with this name in a list of pairs, or NULL. */
static const struct silo_json *in_pairs(const struct silo_json *pairs,
                                        const struct silo_json *name) {
    for (uint32_t i = pairs->count; i-- != 0;) {
        if (silo_json_same_text(&pairs->items[i].items[0], name))
            return &pairs->items[i].items[1];
    }
    return NULL;
}

/* Returns the value of an object's member with this name, or NULL. */
static const struct silo_json *in_object(const struct silo_json *object,
                                         const struct silo_json *name) {
    for (uint32_t i = 0; i < object->count; i++) {
        if (silo_json_same_text(&object->items[2 * i], name))
            return &object->items[2 * i + 1];
    }
    return NULL;
}

static bool are_pairs(const struct silo_json *node) {
    bool are = node != NULL && node->type == SILO_JSON_LIST;
    for (uint32_t i = 0; are && i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        are = pair->type == SILO_JSON_LIST && pair->count == 2 &&
              pair->items[0].type == SILO_JSON_TEXT;
    }
    return are;
}

static bool is_object(const struct silo_json *node) {
    return node != NULL && node->type == SILO_JSON_OBJECT;
}

/* Whether the constants of a specialization and the values of a config together equal the wanted
 * constants. */
static bool are_constants(const struct silo_json *pairs, const struct silo_json *values,
                          const struct silo_json *expected) {
    for (uint32_t i = 0; i < expected->count; i++) {
        const struct silo_json *name = &expected->items[2 * i], *pair = in_pairs(pairs, name);
        if (!same(pair != NULL ? pair : in_object(values, name), name + 1))
            return false;
    }
    for (uint32_t i = 0; i < values->count; i++) {
        if (in_object(expected, &values->items[2 * i]) == NULL)
            return false;
    }
    for (uint32_t i = 0; i < pairs->count; i++) {
        if (in_object(expected, &pairs->items[i].items[0]) == NULL)
            return false;
    }
    return true;
}

static bool serves(const struct silo_manifest *manifest, const struct silo_json *variant,
                   const struct variant_description *description) {
    const struct silo_json *specialization, *config, *pairs, *values;
    if (!same(row_at(manifest, SILO_TABLE_SOURCES, member(variant, "source")),
              description->source) ||
        !same(row_at(manifest, SILO_TABLE_TARGETS, member(variant, "target")),
              description->target) ||
        !has_parameters(row_at(manifest, SILO_TABLE_SIGNATURES, member(variant, "signature")),
                        description->types, true))
        return false;
    specialization =
        row_at(manifest, SILO_TABLE_SPECIALIZATIONS, member(variant, "specialization"));
    config = row_at(manifest, SILO_TABLE_CONFIGS, member(variant, "config"));
    pairs = member(specialization, "constants");
    values = member(config, "values");
    return are_pairs(pairs) && is_object(values) &&
           specialization->count == 2 && /* facts and constants only: neither extents nor a grid */
           same(member(specialization, "facts"), description->facts) &&
           same(member(config, "options"), description->options) &&
           are_constants(pairs, values, description->constants);
}

/* Whether the wanted object has the form that manifest_exact.h describes. */
static bool is_description(const struct variant_description *all) {
    bool is = all->source != NULL && all->target != NULL && all->facts != NULL &&
              all->options != NULL && is_object(all->constants) && all->types != NULL &&
              all->types->type == SILO_JSON_LIST;
    for (uint32_t i = 0; is && i < all->types->count; i++)
        is = all->types->items[i].type == SILO_JSON_LIST && all->types->items[i].count == 3;
    return is;
}

int64_t silo_variants_exact(const struct silo_manifest *manifest, uint32_t kernel,
                            const struct silo_json *object) {
    const struct silo_json *const *members = manifest->kernels[kernel].members;
    const struct silo_json *variants = members[SILO_KERNEL_VARIANTS];
    const struct variant_description all = {member(object, "source"),    member(object, "target"),
                                            member(object, "types"),     member(object, "facts"),
                                            member(object, "constants"), member(object, "options")};
    /* The kernel's parameters are compared first: all variants of a kernel have the same parameter
     * names, so that a difference rules out every variant. */
    if (!is_description(&all) || variants->type != SILO_JSON_LIST ||
        !has_parameters(row_at(manifest, SILO_TABLE_SIGNATURES, members[SILO_KERNEL_SIGNATURE]),
                        all.types, false))
        return -1;
    for (uint32_t i = 0; i < variants->count; i++) {
        if (serves(manifest, &variants->items[i], &all))
            return i;
    }
    return -1;
}
