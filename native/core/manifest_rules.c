#include "manifest_rules.h"

#include "bytes_order.h"
#include "json_text.h"
#include "manifest_signatures.h"
#include "manifest_values.h"

#include <stdlib.h>

enum { MAX_STEPS = 65536, MAX_BOUNDS = 64 };

/* ---- the table of buckets ---- */

/* Checks that the rules are in the order of the canonical texts of their buckets, which must
 * differ. */
static int check_order(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *rules) {
    struct silo_json_text previous = {0}, now = {0};
    int wrong = 0;
    for (uint32_t i = 0; i < rules->count && wrong == 0; i++) {
        now.bytes = 0;
        silo_json_put(&now, &rules->items[i].items[0]);
        if (now.failed) {
            wrong = silo_fail_memory(decoding->error);
        } else if (i != 0) {
            const int order = silo_bytes_order(previous.data, previous.bytes, now.data, now.bytes);
            if (order >= 0)
                wrong = silo_refuse(decoding, field,
                                    order == 0 ? "two dispatch rules have one bucket"
                                               : "not in its canonical form");
        }
        const struct silo_json_text swap = previous;
        previous = now;
        now = swap;
    }
    silo_json_text_free(&previous);
    silo_json_text_free(&now);
    return wrong;
}

static const struct silo_config *new_config(const struct silo_decoding *decoding,
                                            const struct silo_field *field,
                                            const struct silo_json *node) {
    struct silo_config *config = silo_decoding_array(decoding, 1, sizeof *config);
    return config != NULL && silo_decode_config(decoding, field, node, config) == 0 ? config : NULL;
}

static int decode_table(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, uint32_t key_count,
                        struct silo_rules *rules) {
    if (silo_need_items(decoding, field, node, UINT32_MAX) != 0)
        return -1;
    struct silo_rule *array = silo_decoding_array(decoding, node->count, sizeof *array);
    if (array == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        if (pair->type != SILO_JSON_LIST || pair->count != 2)
            return silo_refuse(decoding, field, "not a dispatch rule");
        const struct silo_json *bucket = &pair->items[0];
        if (silo_need_items(decoding, field, bucket, SILO_MAX_MEMBERS) != 0)
            return -1;
        if (bucket->count != key_count)
            return silo_refuse(decoding, field, "a bucket of %u values where the key has %u names",
                               bucket->count, key_count);
        struct silo_value *values = silo_decoding_array(decoding, key_count, sizeof *values);
        if (values == NULL)
            return -1;
        for (uint32_t j = 0; j < key_count; j++) {
            if (silo_decode_value(decoding, field, &bucket->items[j], &values[j]) != 0)
                return -1;
        }
        array[i].bucket = values;
        array[i].config = new_config(decoding, field, &pair->items[1]);
        if (array[i].config == NULL)
            return -1;
    }
    rules->rules = array;
    rules->rule_count = node->count;
    return check_order(decoding, field, node);
}

/* ---- the decision list ---- */

static int decode_limit(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, bool *is_present, int64_t *limit) {
    *is_present = node->type != SILO_JSON_NULL;
    return *is_present ? silo_need_integer(decoding, field, node, 0, INT64_MAX, limit) : 0;
}

static int by_name(const void *name, const void *item) {
    return silo_text_order(name, *(const struct silo_string *const *)item);
}

static int sorted_order(const void *left, const void *right) {
    return silo_text_order(*(const struct silo_string *const *)left,
                           *(const struct silo_string *const *)right);
}

static int decode_bound(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, const struct silo_string *const *key,
                        uint32_t key_count, struct silo_bound *bound) {
    if (node->type != SILO_JSON_LIST || node->count != 3)
        return silo_refuse(decoding, field, "not a bound");
    if (silo_need_text(decoding, field, &node->items[0], &bound->name) != 0 ||
        decode_limit(decoding, field, &node->items[1], &bound->has_above, &bound->above) != 0 ||
        decode_limit(decoding, field, &node->items[2], &bound->has_most, &bound->most) != 0)
        return -1;
    if (!bound->has_above && !bound->has_most)
        return silo_refuse(decoding, field, "a bound that bounds nothing");
    if (bound->has_above && bound->has_most && bound->above >= bound->most)
        return silo_refuse(decoding, field, "a bound that no value is in: above %lld, at most %lld",
                           (long long)bound->above, (long long)bound->most);
    if (key_count == 0 || bsearch(&bound->name, key, key_count, sizeof *key, by_name) == NULL)
        return silo_refuse(decoding, field, "a decision list reads what is not in the key");
    return 0;
}

static int decode_steps(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, const struct silo_string *const *key,
                        uint32_t key_count, struct silo_rules *rules) {
    if (silo_need_items(decoding, field, node, MAX_STEPS) != 0)
        return -1;
    struct silo_step *steps = silo_decoding_array(decoding, node->count, sizeof *steps);
    if (steps == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        if (pair->type != SILO_JSON_LIST || pair->count != 2)
            return silo_refuse(decoding, field, "not a step of a decision list");
        const struct silo_json *items = &pair->items[0];
        if (silo_need_items(decoding, field, items, MAX_BOUNDS) != 0)
            return -1;
        struct silo_bound *bounds = silo_decoding_array(decoding, items->count, sizeof *bounds);
        if (bounds == NULL)
            return -1;
        for (uint32_t j = 0; j < items->count; j++) {
            if (decode_bound(decoding, field, &items->items[j], key, key_count, &bounds[j]) != 0)
                return -1;
        }
        steps[i] =
            (struct silo_step){items->count, bounds, new_config(decoding, field, &pair->items[1])};
        if (steps[i].config == NULL)
            return -1;
        if ((items->count == 0) != (i + 1 == node->count))
            return silo_refuse(decoding, field,
                               "the last step of a decision list, and only that, has no bounds");
    }
    if (node->count == 0)
        return silo_refuse(decoding, field,
                           "the last step of a decision list, and only that, has no bounds");
    rules->steps = steps;
    rules->step_count = node->count;
    return 0;
}

/* ---- the rules of a kernel ---- */

/* Returns the names in sorted order for binary search: each bound of a decision list has a name to
 * look up, and there may be many bounds. On failure returns NULL with the error filled. */
static const struct silo_string **sorted_names(const struct silo_decoding *decoding,
                                               const struct silo_string *names, uint32_t count) {
    const struct silo_string **sorted = silo_decoding_array(decoding, count, sizeof *sorted);
    for (uint32_t i = 0; sorted != NULL && i < count; i++)
        sorted[i] = &names[i];
    if (sorted != NULL && count > 1)
        qsort(sorted, count, sizeof *sorted, sorted_order);
    return sorted;
}

static int decode_dispatch(const struct silo_decoding *decoding, const struct silo_field *field,
                           const struct silo_json *node, const struct silo_kernel_info *kernel,
                           struct silo_rules *rules) {
    const struct silo_json *members[SILO_DISPATCH_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_DISPATCH_LIST, members) != 0 ||
        silo_need_items(decoding, field, members[SILO_DISPATCH_KEY], SILO_MAX_MEMBERS) != 0)
        return -1;
    const uint32_t count = members[SILO_DISPATCH_KEY]->count;
    struct silo_string *key = silo_decoding_array(decoding, count, sizeof *key);
    if (key == NULL)
        return -1;
    bool same = count == kernel->key_count;
    for (uint32_t i = 0; i < count; i++) {
        if (silo_need_text(decoding, field, &members[SILO_DISPATCH_KEY]->items[i], &key[i]) != 0)
            return -1;
        same = same && silo_text_order(&key[i], &kernel->key[i]) == 0;
    }
    if (decode_table(decoding, field, members[SILO_DISPATCH_RULES], count, rules) != 0)
        return -1;
    rules->fallback = new_config(decoding, field, members[SILO_DISPATCH_FALLBACK]);
    if (rules->fallback == NULL)
        return -1;
    if (members[SILO_DISPATCH_UNSEEN] != NULL) {
        const struct silo_string **sorted = sorted_names(decoding, key, count);
        if (sorted == NULL ||
            decode_steps(decoding, field, members[SILO_DISPATCH_UNSEEN], sorted, count, rules) != 0)
            return -1;
    }
    if (!same)
        return silo_refuse(decoding, SILO_FIELD_MEMBER(field, "key"),
                           "another key than the kernel's");
    return 0;
}

/* Decodes the compilers of the rules, the fallback and the steps. */
static int decode_compilers(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                            const struct silo_field *field, const struct silo_json *node,
                            struct silo_rules *rules) {
    const uint64_t expected_count = (uint64_t)rules->rule_count + 1 + rules->step_count;
    if (silo_need_items(decoding, field, node, UINT32_MAX) != 0)
        return -1;
    if (node->count != expected_count)
        return silo_refuse(decoding, field,
                           "it names %u compilers for %u rules, a fallback and %u steps",
                           node->count, rules->rule_count, rules->step_count);
    uint32_t *compilers = silo_decoding_array(decoding, node->count, sizeof *compilers);
    if (compilers == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        if (silo_table_row(decoding, manifest->tables, SILO_TABLE_COMPILERS, child,
                           &node->items[i]) == NULL)
            return -1;
        compilers[i] = (uint32_t)node->items[i].integer;
    }
    rules->compilers = compilers;
    return 0;
}

/* The JSON that must differ between any two entries of a kernel's `rules`, with its hash for
 * sorting. */
struct identity {
    const struct silo_json *target, *signature, *extents; /* `extents` may be NULL */
    uint64_t hash;
    uint32_t number;
};

static int by_hash(const void *left, const void *right) {
    const struct identity *a = left, *b = right;
    return (a->hash > b->hash) - (a->hash < b->hash);
}

static bool same_identity(const struct identity *left, const struct identity *right) {
    return silo_json_equal(left->target, right->target) &&
           silo_json_equal(left->signature, right->signature) &&
           (left->extents == NULL || right->extents == NULL
                ? left->extents == right->extents
                : silo_json_equal(left->extents, right->extents));
}

static int check_identities(const struct silo_decoding *decoding, const struct silo_field *field,
                            struct identity *identities, uint32_t count) {
    if (count > 1)
        qsort(identities, count, sizeof *identities, by_hash);
    uint32_t again = count; /* the lowest number of an entry that equals an earlier one */
    for (uint32_t i = 1; i < count; i++) {
        /* Entries with equal hashes are adjacent. Their number is small unless entries are equal,
         * or hashes collide on purpose. */
        for (uint32_t j = i; j-- != 0 && identities[j].hash == identities[i].hash;) {
            const uint32_t a = identities[i].number, b = identities[j].number;
            const uint32_t later = a > b ? a : b;
            if (later < again && same_identity(&identities[j], &identities[i]))
                again = later;
        }
    }
    if (again != count)
        return silo_refuse(decoding, SILO_FIELD_ITEM(field, again),
                           "two dispatch rules for one target, signature and extents");
    return 0;
}

static int decode_one(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_field *field, const struct silo_json *node,
                      const struct silo_kernel_info *kernel, struct silo_rules *rules,
                      struct identity *identity) {
    const struct silo_json *members[SILO_RULES_MEMBERS];
    if (silo_need_members(decoding, field, node, &SILO_RULES_LIST, members) != 0)
        return -1;
    const struct silo_field *signature = SILO_FIELD_MEMBER(field, "signature");
    rules->target = silo_table_row(decoding, manifest->tables, SILO_TABLE_TARGETS,
                                   SILO_FIELD_MEMBER(field, "target"), members[SILO_RULES_TARGET]);
    if (rules->target == NULL)
        return -1;
    rules->signature = silo_table_row(decoding, manifest->tables, SILO_TABLE_SIGNATURES, signature,
                                      members[SILO_RULES_SIGNATURE]);
    if (rules->signature == NULL || decode_dispatch(decoding, SILO_FIELD_MEMBER(field, "rules"),
                                                    members[SILO_RULES_RULES], kernel, rules) != 0)
        return -1;
    int64_t space;
    if (members[SILO_RULES_SPACE] != NULL &&
        silo_need_integer(decoding, SILO_FIELD_MEMBER(field, "space"), members[SILO_RULES_SPACE], 1,
                          SILO_MAX_VARIANTS, &space) != 0)
        return -1;
    if (members[SILO_RULES_EXTENTS] != NULL &&
        silo_decode_extents(decoding, SILO_FIELD_MEMBER(field, "extents"),
                            members[SILO_RULES_EXTENTS], &rules->extents,
                            &rules->extent_count) != 0)
        return -1;
    if (members[SILO_RULES_COMPILERS] != NULL &&
        decode_compilers(manifest, decoding, SILO_FIELD_MEMBER(field, "compilers"),
                         members[SILO_RULES_COMPILERS], rules) != 0)
        return -1;
    struct silo_table *targets = &manifest->tables[SILO_TABLE_TARGETS];
    struct silo_table *signatures = &manifest->tables[SILO_TABLE_SIGNATURES];
    const uint32_t target_row = (uint32_t)members[SILO_RULES_TARGET]->integer;
    const uint32_t signature_row = (uint32_t)members[SILO_RULES_SIGNATURE]->integer;
    *identity = (struct identity){
        .target = &targets->rows[target_row],
        .signature = &signatures->rows[signature_row],
        .extents = members[SILO_RULES_EXTENTS],
        .hash =
            silo_table_hash(targets, target_row) ^ 3 * silo_table_hash(signatures, signature_row),
    };
    if (identity->extents != NULL)
        identity->hash ^= 5 * silo_json_hash(identity->extents);
    return 0;
}

int silo_decode_rules(struct silo_manifest *manifest, const struct silo_decoding *decoding,
                      const struct silo_field *field, const struct silo_json *node,
                      struct silo_kernel_info *kernel) {
    if (silo_need_items(decoding, field, node, SILO_MAX_RULES) != 0)
        return -1;
    struct silo_rules *rules = silo_decoding_array(decoding, node->count, sizeof *rules);
    struct identity *identities = calloc(node->count + 1, sizeof *identities);
    int result = rules != NULL ? 0 : -1;
    if (identities == NULL)
        result = silo_fail_memory(decoding->error);
    uint64_t length = 0;
    for (uint32_t i = 0; i < node->count && result == 0; i++) {
        const struct silo_field *where = SILO_FIELD_ITEM(field, i);
        result = decode_one(manifest, decoding, where, &node->items[i], kernel, &rules[i],
                            &identities[i]);
        identities[i].number = i;
        if (result != 0)
            break;
        const struct silo_json *signatures = manifest->tables[SILO_TABLE_SIGNATURES].rows;
        length += silo_table_length(&manifest->tables[SILO_TABLE_SIGNATURES],
                                    (uint32_t)(identities[i].signature - signatures));
        const uint64_t most = manifest->allowed / SILO_EXPANDED_SHARE;
        if (length > most)
            result = silo_refuse_large(
                decoding, where,
                "the signatures of the rules up to here are %llu characters long; at most %llu are "
                "allowed (file_memory, SILO_FILE_BYTES)",
                (unsigned long long)length, (unsigned long long)most);
    }
    if (result == 0)
        result = check_identities(decoding, field, identities, node->count);
    free(identities);
    kernel->rules = rules;
    kernel->rules_count = node->count;
    return result;
}
