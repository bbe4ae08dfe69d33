#include "json_text.h"

#include "bytes_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void silo_json_text_free(struct silo_json_text *text) {
    free(text->data);
    *text = (struct silo_json_text){0};
}

void silo_json_put_bytes(struct silo_json_text *text, const char *data, size_t bytes) {
    if (text->failed || bytes == 0)
        return;
    if (bytes > text->room - text->bytes) {
        size_t room = text->room < 256 ? 256 : 2 * text->room;
        while (room - text->bytes < bytes)
            room *= 2;
        char *grown = realloc(text->data, room);
        if (grown == NULL) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->room = room;
    }
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
}

void silo_json_put_word(struct silo_json_text *text, const char *word) {
    silo_json_put_bytes(text, word, strlen(word));
}

/* Returns the letter of a character's short escape (for control characters, quotes and
 * backslashes), or 0 if it has none. */
static char short_escape(unsigned char c) {
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

void silo_json_put_text(struct silo_json_text *text, const char *data, size_t bytes) {
    silo_json_put_word(text, "\"");
    size_t from = 0; /* first character that is not written yet */
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        silo_json_put_bytes(text, data + from, i - from);
        from = i + 1;
        char escape[8];
        const char letter = short_escape(c);
        if (letter != 0)
            snprintf(escape, sizeof escape, "\\%c", letter);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        silo_json_put_word(text, escape);
    }
    silo_json_put_bytes(text, data + from, bytes - from);
    silo_json_put_word(text, "\"");
}

static int by_name(const void *left, const void *right) {
    const struct silo_json *const *a = left, *const *b = right;
    return silo_bytes_order((*a)->text, (*a)->count, (*b)->text, (*b)->count);
}

static void put_object(struct silo_json_text *text, const struct silo_json *node) {
    enum { FEW = 32 };
    const struct silo_json *few[FEW], **names = few;
    if (node->count > FEW) {
        names = malloc(node->count * sizeof *names);
        if (names == NULL) {
            text->failed = true;
            return;
        }
    }
    for (uint32_t i = 0; i < node->count; i++)
        names[i] = &node->items[2 * i];
    if (node->count > 1)
        qsort(names, node->count, sizeof *names, by_name);
    silo_json_put_word(text, "{");
    for (uint32_t i = 0; i < node->count; i++) {
        if (i != 0)
            silo_json_put_word(text, ",");
        silo_json_put_text(text, names[i]->text, names[i]->count);
        silo_json_put_word(text, ":");
        silo_json_put(text, names[i] + 1);
    }
    silo_json_put_word(text, "}");
    if (names != few)
        free(names);
}

void silo_json_put(struct silo_json_text *text, const struct silo_json *node) {
    char digits[24];
    switch (node->type) {
    case SILO_JSON_NULL:
        silo_json_put_word(text, "null");
        return;
    case SILO_JSON_BOOL:
        silo_json_put_word(text, node->integer ? "true" : "false");
        return;
    case SILO_JSON_INT:
        snprintf(digits, sizeof digits, "%" PRId64, node->integer);
        silo_json_put_word(text, digits);
        return;
    case SILO_JSON_BIG_INT:
        silo_json_put_bytes(text, node->text, node->count);
        return;
    case SILO_JSON_TEXT:
        silo_json_put_text(text, node->text, node->count);
        return;
    case SILO_JSON_OBJECT:
        put_object(text, node);
        return;
    default:
        silo_json_put_word(text, "[");
        for (uint32_t i = 0; i < node->count; i++) {
            if (i != 0)
                silo_json_put_word(text, ",");
            silo_json_put(text, &node->items[i]);
        }
        silo_json_put_word(text, "]");
    }
}

/* ---- the length of json.dumps in Python: ", " and ": " as separators, ASCII only ---- */

static uint64_t dumped_text(const char *data, size_t bytes) {
    uint64_t length = 2;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (c < 0x80)
            length += short_escape(c) != 0 ? 2 : c < 0x20 || c == 0x7F ? 6 : 1;
        else if (c >= 0xC0) /* starts a character, written as one or two \uXXXX */
            length += c >= 0xF0 ? 12 : 6;
    }
    return length;
}

uint64_t silo_json_dumped(const struct silo_json *node) {
    uint64_t length = 0;
    switch (node->type) {
    case SILO_JSON_NULL:
        return 4;
    case SILO_JSON_BOOL:
        return node->integer ? 4 : 5;
    case SILO_JSON_INT: {
        uint64_t remaining = node->integer < 0 ? -(uint64_t)node->integer : (uint64_t)node->integer;
        for (length = node->integer < 0 ? 2 : 1; remaining >= 10; remaining /= 10)
            length++;
        return length;
    }
    case SILO_JSON_BIG_INT:
        return node->count;
    case SILO_JSON_TEXT:
        return dumped_text(node->text, node->count);
    case SILO_JSON_OBJECT:
        length = node->count != 0 ? 2 * (uint64_t)node->count : 2; /* braces and separators */
        for (uint32_t i = 0; i < node->count; i++)
            length += silo_json_dumped(&node->items[2 * i]) + 2 +
                      silo_json_dumped(&node->items[2 * i + 1]);
        return length;
    default:
        length = node->count != 0 ? 2 * (uint64_t)node->count : 2;
        for (uint32_t i = 0; i < node->count; i++)
            length += silo_json_dumped(&node->items[i]);
        return length;
    }
}

/* ---- comparing ---- */

static const struct silo_json *same_name(const struct silo_json *object,
                                         const struct silo_json *name, uint32_t likely) {
    if (silo_json_same_text(&object->items[2 * likely], name))
        return &object->items[2 * likely + 1];
    for (uint32_t i = 0; i < object->count; i++) {
        if (silo_json_same_text(&object->items[2 * i], name))
            return &object->items[2 * i + 1];
    }
    return NULL;
}

bool silo_json_equal(const struct silo_json *left, const struct silo_json *right) {
    if (left == right)
        return true;
    if (left->type != right->type || left->count != right->count)
        return false;
    switch (left->type) {
    case SILO_JSON_NULL:
        return true;
    case SILO_JSON_BOOL:
    case SILO_JSON_INT:
        return left->integer == right->integer;
    case SILO_JSON_BIG_INT:
    case SILO_JSON_TEXT:
        return silo_json_same_text(left, right);
    case SILO_JSON_OBJECT:
        for (uint32_t i = 0; i < left->count; i++) {
            const struct silo_json *pair = same_name(right, &left->items[2 * i], i);
            if (pair == NULL || !silo_json_equal(&left->items[2 * i + 1], pair))
                return false;
        }
        return true;
    default:
        for (uint32_t i = 0; i < left->count; i++) {
            if (!silo_json_equal(&left->items[i], &right->items[i]))
                return false;
        }
        return true;
    }
}

static uint64_t mixed(uint64_t hash, uint64_t more) {
    hash = (hash ^ more) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

uint64_t silo_json_hash(const struct silo_json *node) {
    uint64_t hash = mixed(node->type, node->count), sum = 0;
    switch (node->type) {
    case SILO_JSON_BOOL:
    case SILO_JSON_INT:
        return mixed(hash, (uint64_t)node->integer);
    case SILO_JSON_BIG_INT:
    case SILO_JSON_TEXT:
        for (uint32_t i = 0; i < node->count; i++)
            hash = mixed(hash, (unsigned char)node->text[i]);
        return hash;
    case SILO_JSON_OBJECT: /* members may be in any order */
        for (uint32_t i = 0; i < node->count; i++)
            sum +=
                mixed(silo_json_hash(&node->items[2 * i]), silo_json_hash(&node->items[2 * i + 1]));
        return mixed(hash, sum);
    case SILO_JSON_LIST:
        for (uint32_t i = 0; i < node->count; i++)
            hash = mixed(hash, silo_json_hash(&node->items[i]));
        return hash;
    default:
        return hash;
    }
}

size_t silo_json_characters(const char *data, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)data[i] & 0xC0) != 0x80;
    return count;
}
