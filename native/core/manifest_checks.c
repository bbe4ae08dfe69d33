#include "manifest_checks.h"

#include "bytes_order.h"
#include "json_text.h"
#include "printable.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_SHORT_TEXT = 1 << 16, MAX_NAME = 1024, MAX_LISTED_NAMES = 1 << 12 };

/* ---- errors ---- */

static void write_field(const struct silo_field *field, char *text, size_t room, size_t *length) {
    if (field->of != NULL)
        write_field(field->of, text, room, length);
    const size_t remaining = room - *length;
    int wrote;
    if (field->name == NULL)
        wrote = snprintf(text + *length, remaining, "[%llu]", (unsigned long long)field->index);
    else
        wrote =
            snprintf(text + *length, remaining, "%s%s", field->of != NULL ? "." : "", field->name);
    const size_t more = wrote < 0 ? 0 : (size_t)wrote;
    *length += more < remaining ? more : remaining - 1;
}

/* Makes a text from a file safe to show: replaces characters that names may not have with question
 * marks, and drops a character that was cut at the end. */
static void make_shown(char *text) {
    size_t bytes = strlen(text), last = bytes;
    while (last > 0 && ((unsigned char)text[last - 1] & 0xC0) == 0x80)
        last--;
    if (last > 0 && (unsigned char)text[last - 1] >= 0xC0) {
        const unsigned char first = (unsigned char)text[last - 1];
        const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
        if (bytes - (last - 1) < length)
            text[bytes = last - 1] = 0;
    }
    if (silo_printable(text, bytes))
        return;
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7F)
            text[i] = '?';
    }
}

static int refuse(const struct silo_decoding *decoding, const struct silo_field *field, int code,
                  const char *format, va_list arguments) {
    /* `name` is larger than the error's member `field`, so that silo_fail_at sees a name that is
     * too long, cuts it and ends it with "...". */
    char message[800], name[160];
    size_t length = 0;
    vsnprintf(message, sizeof message, format, arguments);
    write_field(field, name, sizeof name, &length);
    make_shown(message);
    make_shown(name);
    return silo_fail_at(decoding->error, code, name, decoding->offset, "%s: %s", decoding->file,
                        message);
}

int silo_refuse(const struct silo_decoding *decoding, const struct silo_field *field,
                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    refuse(decoding, field, SILO_ERROR_DAMAGED, format, arguments);
    va_end(arguments);
    return -1;
}

int silo_refuse_large(const struct silo_decoding *decoding, const struct silo_field *field,
                      const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    refuse(decoding, field, SILO_ERROR_TOO_LARGE, format, arguments);
    va_end(arguments);
    return -1;
}

void *silo_decoding_array(const struct silo_decoding *decoding, size_t count, size_t size) {
    void *array = silo_arena_array(decoding->arena, count, size);
    if (array == NULL)
        silo_fail_memory(decoding->error);
    return array;
}

static int wrong_type(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, const char *expected) {
    return silo_refuse(decoding, field, "a %s where %s is needed", silo_json_type_name(node),
                       expected);
}

/* ---- readers ---- */

static bool is_known(const struct silo_decoding *decoding, const struct silo_member *member) {
    return member->since <= decoding->minor;
}

static bool is_among(const struct silo_decoding *decoding, const struct silo_member_list *list,
                     const struct silo_json *name) {
    for (size_t i = 0; i < list->count; i++) {
        if (is_known(decoding, &list->members[i]) && silo_json_is(name, list->members[i].name))
            return true;
    }
    return false;
}

/* Fails with the members that are not allowed and those that are missing. */
static int refuse_members(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node, const struct silo_member_list *list) {
    struct silo_json_text unknown = {0}, missing = {0};
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *name = &node->items[2 * i];
        if (is_among(decoding, list, name))
            continue;
        silo_json_put_word(&unknown, unknown.bytes != 0 ? ", '" : "'");
        silo_json_put_bytes(&unknown, name->text, name->count);
        silo_json_put_word(&unknown, "'");
    }
    for (size_t i = 0; i < list->required; i++) {
        if (silo_json_member(node, list->members[i].name) != NULL)
            continue;
        silo_json_put_word(&missing, missing.bytes != 0 ? ", '" : "'");
        silo_json_put_word(&missing, list->members[i].name);
        silo_json_put_word(&missing, "'");
    }
    const int most = 300; /* at most this many bytes of each list of names are in the error */
    const int wrong = unknown.bytes < (size_t)most ? (int)unknown.bytes : most;
    const int absent = missing.bytes < (size_t)most ? (int)missing.bytes : most;
    if (unknown.failed || missing.failed)
        silo_fail_memory(decoding->error);
    else if (wrong == 0)
        silo_refuse(decoding, field, "members [%.*s] are missing", absent, missing.data);
    else if (absent == 0)
        silo_refuse(decoding, field, "unknown members [%.*s]", wrong, unknown.data);
    else
        silo_refuse(decoding, field, "unknown members [%.*s], members [%.*s] are missing", wrong,
                    unknown.data, absent, missing.data);
    silo_json_text_free(&unknown);
    silo_json_text_free(&missing);
    return -1;
}

int silo_need_members(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, const struct silo_member_list *list,
                      const struct silo_json **members) {
    if (node->type != SILO_JSON_OBJECT)
        return wrong_type(decoding, field, node, "an object");
    size_t used = 0, missing = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct silo_member *member = &list->members[i];
        members[i] = is_known(decoding, member) ? silo_json_member(node, member->name) : NULL;
        used += members[i] != NULL;
        missing += members[i] == NULL && i < list->required;
    }
    /* Names are unique, so that every member was used if the counts are equal. */
    return missing == 0 && used == node->count ? 0 : refuse_members(decoding, field, node, list);
}

static int check_flag(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node) {
    bool flag = false;
    if (silo_need_bool(decoding, field, node, &flag) != 0)
        return -1;
    return flag ? 0 : silo_refuse(decoding, field, "it is left out where it is false");
}

int silo_check_members(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_member_list *list,
                       const struct silo_json *const *members) {
    struct silo_string unused;
    int result = 0;
    for (size_t i = 0; i < list->count && result == 0; i++) {
        const struct silo_field *child = SILO_FIELD_MEMBER(field, list->members[i].name);
        if (members[i] == NULL)
            continue;
        switch (list->members[i].check) {
        case SILO_CHECK_TEXT:
            result = silo_need_short_text(decoding, child, members[i], &unused);
            break;
        case SILO_CHECK_NAME:
            result = silo_need_name(decoding, child, members[i], &unused);
            break;
        case SILO_CHECK_FLAG:
            result = check_flag(decoding, child, members[i]);
            break;
        default:
            break;
        }
    }
    return result;
}

struct silo_string silo_member_text(const struct silo_json *member) {
    return member != NULL ? (struct silo_string){member->text, member->count}
                          : (struct silo_string){"", 0};
}

int silo_need_items(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, uint64_t most) {
    if (node->type != SILO_JSON_LIST)
        return wrong_type(decoding, field, node, "a list");
    if (node->count > most)
        return silo_refuse(decoding, field, "%u items where at most %llu are allowed", node->count,
                           (unsigned long long)most);
    return 0;
}

int silo_need_integer(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, int64_t low, int64_t high, int64_t *value) {
    if (node->type != SILO_JSON_INT && node->type != SILO_JSON_BIG_INT)
        return wrong_type(decoding, field, node, "an integer");
    if (node->type == SILO_JSON_BIG_INT || node->integer < low || node->integer > high)
        return silo_refuse(decoding, field, "the number is out of range (%lld to %lld)",
                           (long long)low, (long long)high);
    *value = node->integer;
    return 0;
}

int silo_need_bool(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, bool *value) {
    if (node->type != SILO_JSON_BOOL)
        return wrong_type(decoding, field, node, "true or false");
    *value = node->integer != 0;
    return 0;
}

int silo_need_minor(const struct silo_decoding *decoding, const struct silo_field *field,
                    uint32_t minor, const char *noun) {
    if (decoding->minor >= minor)
        return 0;
    return silo_refuse(decoding, field, "%s are of format 1.%u, and the file of 1.%u", noun, minor,
                       decoding->minor);
}

int silo_need_text(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text) {
    if (node->type != SILO_JSON_TEXT)
        return wrong_type(decoding, field, node, "a string");
    *text = (struct silo_string){node->text, node->count};
    return 0;
}

static int read_bounded(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, size_t most, struct silo_string *text) {
    if (silo_need_text(decoding, field, node, text) != 0)
        return -1;
    if (text->length > most) {
        const size_t characters = silo_json_characters(text->data, text->length);
        if (characters > most)
            return silo_refuse(decoding, field, "%zu characters where at most %zu are allowed",
                               characters, most);
    }
    return 0;
}

int silo_need_short_text(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_string *text) {
    return read_bounded(decoding, field, node, MAX_SHORT_TEXT, text);
}

int silo_need_name(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, struct silo_string *text) {
    if (read_bounded(decoding, field, node, MAX_NAME, text) != 0)
        return -1;
    if (text->length == 0 || !silo_printable(text->data, text->length))
        return silo_refuse(decoding, field, "not a name");
    return 0;
}

int silo_text_order(const struct silo_string *left, const struct silo_string *right) {
    return silo_bytes_order(left->data, left->length, right->data, right->length);
}

static int by_text(const void *left, const void *right) {
    return silo_text_order(*(const struct silo_string *const *)left,
                           *(const struct silo_string *const *)right);
}

int silo_texts_repeat(const struct silo_string *first, size_t count, size_t stride) {
    const char *items = (const char *)first;
    if (count <= 16) {
        for (size_t i = 1; i < count; i++) {
            for (size_t j = 0; j < i; j++) {
                const struct silo_string *left = (const void *)(items + i * stride);
                const struct silo_string *right = (const void *)(items + j * stride);
                if (left->length == right->length &&
                    memcmp(left->data, right->data, left->length) == 0)
                    return 1;
            }
        }
        return 0;
    }
    const struct silo_string **sorted = malloc(count * sizeof *sorted);
    if (sorted == NULL)
        return -1;
    for (size_t i = 0; i < count; i++)
        sorted[i] = (const void *)(items + i * stride);
    qsort(sorted, count, sizeof *sorted, by_text);
    int repeat = 0;
    for (size_t i = 1; i < count && !repeat; i++)
        repeat = silo_text_order(sorted[i - 1], sorted[i]) == 0;
    free(sorted);
    return repeat;
}

int silo_need_names(const struct silo_decoding *decoding, const struct silo_field *field,
                    const struct silo_json *node, const struct silo_string **names,
                    uint32_t *count) {
    if (silo_need_items(decoding, field, node, MAX_LISTED_NAMES) != 0)
        return -1;
    struct silo_string *strings = silo_decoding_array(decoding, node->count, sizeof *strings);
    if (strings == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        if (silo_need_name(decoding, SILO_FIELD_ITEM(field, i), &node->items[i], &strings[i]) != 0)
            return -1;
    }
    const int repeat = silo_texts_repeat(strings, node->count, sizeof *strings);
    if (repeat != 0)
        return repeat < 0 ? silo_fail_memory(decoding->error)
                          : silo_refuse(decoding, field, "a name occurs twice");
    *names = strings;
    *count = node->count;
    return 0;
}

int silo_need_word(const struct silo_decoding *decoding, const struct silo_field *field,
                   const struct silo_json *node, const char *const *choices, size_t count,
                   const char *noun, uint8_t *number) {
    for (size_t i = 0; i < count; i++) {
        if (silo_json_is(node, choices[i])) {
            *number = (uint8_t)i;
            return 0;
        }
    }
    return silo_refuse(decoding, field, "not %s", noun);
}
