#include "manifest_open.h"

#include "manifest_blobs.h"
#include "manifest_kernels.h"
#include "manifest_plans.h"

/* Estimates the bytes of memory that parsing a text takes in Python. The limit is the same in C and
 * Python (silo.core.values.footprint). */
static uint64_t footprint(const char *text, size_t bytes) {
    uint64_t cost = 0;
    unsigned char all = 0;
    for (size_t i = 0; i < bytes; i++) {
        all |= (unsigned char)text[i];
        switch (text[i]) {
        case '[':
            cost += 104;
            break;
        case '{':
            cost += 192;
            break;
        case ',':
            cost += 36;
            break;
        case ':':
            cost += 48;
            break;
        case '"':
            cost += 28;
            break;
        default:
            break;
        }
    }
    return cost + (all < 0x80 ? 2 : 8) * (uint64_t)bytes;
}

static int refuse_large(const struct silo_decoding *decoding, const struct silo_field *field,
                        const char *text, size_t bytes, uint64_t budget) {
    enum { MOST = 54 }; /* the largest estimate, in bytes, for one character */
    if (bytes * (uint64_t)MOST <= budget)
        return 0;
    const uint64_t needed = footprint(text, bytes);
    if (needed <= budget)
        return 0;
    return silo_refuse_large(decoding, field,
                             "the manifest is not read: it would take about %llu MiB of memory, "
                             "and %llu MiB are allowed (file_memory, SILO_FILE_BYTES)",
                             (unsigned long long)(needed >> 20),
                             (unsigned long long)(budget >> 20));
}

/* Checks an object whose values are short texts. */
static int check_texts(const struct silo_decoding *decoding, const char *member,
                       const struct silo_json *node) {
    enum { MAX_TEXTS = 1 << 10 };
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, member);
    struct silo_string text;
    if (node->type != SILO_JSON_OBJECT)
        return silo_refuse(decoding, field, "a %s where an object is needed",
                           silo_json_type_name(node));
    if (node->count > MAX_TEXTS)
        return silo_refuse(decoding, field, "too many members");
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *name = &node->items[2 * i];
        if (silo_need_name(decoding, field, name, &text) != 0 ||
            silo_need_short_text(decoding, SILO_FIELD_MEMBER(field, name->text), name + 1, &text) !=
                0)
            return -1;
    }
    return 0;
}

/* Checks the attachments, which this library does not use. */
static int check_attachments(const struct silo_manifest *manifest,
                             const struct silo_decoding *decoding, const struct silo_json *node) {
    enum { MAX_ATTACHMENTS = 1 << 16 };
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "attachments");
    struct silo_string previous = {NULL, 0}, name;
    if (silo_need_items(decoding, field, node, MAX_ATTACHMENTS) != 0)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *pair = &node->items[i];
        const struct silo_field *child = SILO_FIELD_ITEM(field, i);
        if (pair->type != SILO_JSON_LIST || pair->count != 2)
            return silo_refuse(decoding, child, "an attachment is a name and a blob");
        if (silo_need_name(decoding, SILO_FIELD_ITEM(child, 0), &pair->items[0], &name) != 0)
            return -1;
        if (i != 0 && silo_text_order(&previous, &name) >= 0)
            return silo_refuse(decoding, SILO_FIELD_ITEM(child, 0),
                               "attachments are not sorted, or two are called %s", name.data);
        if (silo_blob_number(manifest, decoding, SILO_FIELD_ITEM(child, 1), &pair->items[1]) < 0)
            return -1;
        previous = name;
    }
    if (node->count == 0)
        return silo_refuse(decoding, field, "a list of no attachments is left out");
    return 0;
}

int silo_manifest_open(struct silo_manifest *manifest, char *text, size_t bytes,
                       silo_error *error) {
    const struct silo_decoding state = silo_decoding_of(manifest, error), *decoding = &state;
    const struct silo_field *field = SILO_FIELD_MEMBER(NULL, "manifest");
    if (bytes < 2 || memcmp(text, "{\"", 2) != 0)
        return silo_refuse(decoding, field, "the manifest is no JSON object");
    if (refuse_large(decoding, field, text, bytes, manifest->allowed / SILO_MANIFEST_SHARE) != 0)
        return -1;
    const char *problem;
    size_t offset;
    const struct silo_json *top = silo_json_parse(text, bytes, &manifest->arena, &problem, &offset);
    if (top == NULL && problem == NULL)
        return silo_fail_memory(error);
    if (top == NULL)
        return silo_refuse(decoding, field, "the manifest is not canonical JSON: %s (byte %zu)",
                           problem, offset);
    const struct silo_json *members[SILO_TOP_MEMBERS];
    if (silo_need_members(decoding, field, top, &SILO_TOP_LIST, members) != 0)
        return -1;
    const struct silo_json *format = members[SILO_TOP_FORMAT];
    if (format->type != SILO_JSON_LIST || format->count != 2 ||
        format->items[0].type != SILO_JSON_INT || format->items[1].type != SILO_JSON_INT ||
        format->items[0].integer != manifest->header.major ||
        format->items[1].integer != manifest->header.minor)
        return silo_refuse(decoding, SILO_FIELD_MEMBER(NULL, "format"),
                           "the manifest says another version than the header, %u.%u",
                           manifest->header.major, manifest->header.minor);
    if (check_texts(decoding, "producer", members[SILO_TOP_PRODUCER]) != 0 ||
        check_texts(decoding, "toolchain", members[SILO_TOP_TOOLCHAIN]) != 0 ||
        check_texts(decoding, "notes", members[SILO_TOP_NOTES]) != 0 ||
        silo_blobs_open(manifest, decoding, members[SILO_TOP_BLOBS]) != 0 ||
        (members[SILO_TOP_ATTACHMENTS] != NULL &&
         check_attachments(manifest, decoding, members[SILO_TOP_ATTACHMENTS]) != 0) ||
        (members[SILO_TOP_PLANS] != NULL &&
         silo_plans_open(manifest, decoding, members[SILO_TOP_PLANS]) != 0) ||
        silo_tables_open(decoding, members[SILO_TOP_TABLES], manifest->tables) != 0)
        return -1;
    manifest->top = top;
    return silo_kernels_open(manifest, decoding, members[SILO_TOP_KERNELS]);
}
