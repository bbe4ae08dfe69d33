#include "json.h"

#include "bytes_order.h"

#include <stdlib.h>

/* The state of parsing a text. Parsed nodes stay on `stack` until the list or object that contains
 * them ends; then they are copied to the arena together. */
struct parser {
    char *at, *end;
    struct silo_arena *arena;
    struct silo_json *stack; /* owned */
    size_t height, room;
    const char *problem;
};

struct open_one {
    size_t begins; /* index on the stack of the first item of the open list or object */
    bool object;
};

static bool fails(struct parser *p, const char *problem) {
    p->problem = problem;
    return false;
}

static bool push(struct parser *p, struct silo_json node) {
    if (p->height == p->room) {
        const size_t room = p->room == 0 ? 256 : 2 * p->room;
        struct silo_json *grown = realloc(p->stack, room * sizeof *grown);
        if (grown == NULL)
            return false; /* `problem` stays NULL: out of memory */
        p->stack = grown;
        p->room = room;
    }
    p->stack[p->height++] = node;
    return true;
}

static void skip_space(struct parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

/* ---- strings ---- */

/* Returns the number of bytes of the UTF-8 character that `bytes` begin with, or 0 if it is invalid
 * (surrogates are invalid). */
static size_t sequence(const unsigned char *bytes, size_t remaining) {
    const unsigned char first = bytes[0];
    size_t length;
    unsigned char low = 0x80, high = 0xBF;
    if (first < 0xC2)
        return 0;
    if (first < 0xE0) {
        length = 2;
    } else if (first < 0xF0) {
        length = 3;
        low = first == 0xE0 ? 0xA0 : 0x80;
        high = first == 0xED ? 0x9F : 0xBF;
    } else if (first < 0xF5) {
        length = 4;
        low = first == 0xF0 ? 0x90 : 0x80;
        high = first == 0xF4 ? 0x8F : 0xBF;
    } else {
        return 0;
    }
    if (remaining < length || bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (bytes[i] < 0x80 || bytes[i] > 0xBF)
            return 0;
    }
    return length;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the four digits of \uXXXX; -1 if they are invalid. */
static int32_t code_unit(struct parser *p) {
    int32_t value = 0;
    if (p->end - p->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(*p->at++);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static char *put(char *to, uint32_t code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* Decodes an escape sequence, whose backslash was already read, and writes the character at `*to`.
 * The decoded text is never longer than the escape sequence, so that the text is decoded in place.
 */
static bool unescape(struct parser *p, char **to) {
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return fails(p, "a string without an end");
    const char c = *p->at++;
    if (c != 'u') {
        const char *escape = c != 0 ? strchr(escapes, c) : NULL;
        if (escape == NULL)
            return fails(p, "an unknown escape in a string");
        *(*to)++ = meant[escape - escapes];
        return true;
    }
    int32_t code = code_unit(p);
    if (code < 0)
        return fails(p, "\\u without four hexadecimal digits");
    if (code >= 0xD800 && code < 0xE000) {
        int32_t low = -1;
        if (code < 0xDC00 && p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u') {
            p->at += 2;
            low = code_unit(p);
        }
        if (low < 0xDC00 || low >= 0xE000)
            return fails(p, "a lone surrogate in a string");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *to = put(*to, (uint32_t)code);
    return true;
}

/* Whether the next eight bytes of a string can be copied as they are: all are ASCII, and none is a
 * control character, a quote or a backslash. */
static inline bool eight_plain(const char *text) {
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;
    uint64_t word;
    memcpy(&word, text, sizeof word);
    const uint64_t quotes = word ^ ones * '"', slashes = word ^ ones * '\\';
    /* The high bit of a byte is set if the byte is not ASCII, a control character, a quote or a
     * backslash. */
    return ((word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & highs) == 0;
}

/* Reads a string after its opening quote, and writes a 0 at its end. */
static bool read_text(struct parser *p, struct silo_json *node) {
    char *begins = p->at;
    while (p->end - p->at >= 8 && eight_plain(p->at))
        p->at += 8;
    char *to = p->at; /* the text up to here has no escapes */
    for (;;) {
        if (p->at == p->end)
            return fails(p, "a string without an end");
        const unsigned char c = (unsigned char)*p->at;
        if (c == '"')
            break;
        if (c == '\\') {
            p->at++;
            if (!unescape(p, &to))
                return false;
        } else if (c < 0x20) {
            return fails(p, "a control character in a string");
        } else {
            const size_t length =
                c < 0x80 ? 1 : sequence((const unsigned char *)p->at, (size_t)(p->end - p->at));
            if (length == 0)
                return fails(p, "bytes that are no UTF-8");
            if (to != p->at)
                memmove(to, p->at, length);
            to += length;
            p->at += length;
        }
    }
    p->at++;
    *to = 0; /* written over the closing quote, or before it if decoding escapes made the text
                shorter */
    *node = (struct silo_json){
        .type = SILO_JSON_TEXT, .count = (uint32_t)(to - begins), .text = begins};
    return true;
}

/* ---- the rest ---- */

static bool read_number(struct parser *p, struct silo_json *node) {
    const char *begins = p->at;
    const bool negative = *p->at == '-';
    p->at += negative;
    const char *digits = p->at;
    int64_t value = 0;
    bool big = false;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        const int digit = *p->at - '0';
        /* The digits of a negative number are subtracted, because INT64_MIN has no positive
         * counterpart. */
        big = big || __builtin_mul_overflow(value, 10, &value) ||
              __builtin_add_overflow(value, negative ? -digit : digit, &value);
        p->at++;
        if (*digits == '0')
            break; /* a number that starts with 0 has no further digits */
    }
    if (p->at == digits)
        return fails(p, "not a number");
    if (p->at - digits > SILO_JSON_MAX_DIGITS)
        return fails(p, "an integer of too many digits");
    if (p->at < p->end && (*p->at == '.' || *p->at == 'e' || *p->at == 'E'))
        return fails(p, "a float in canonical JSON");
    if (big)
        *node = (struct silo_json){
            .type = SILO_JSON_BIG_INT, .count = (uint32_t)(p->at - begins), .text = begins};
    else
        *node = (struct silo_json){.type = SILO_JSON_INT, .integer = value};
    return true;
}

static bool read_word(struct parser *p, const char *word, struct silo_json value,
                      struct silo_json *node) {
    const size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0)
        return fails(p, "not a value");
    p->at += length;
    *node = value;
    return true;
}

/* Reads a value that is neither a list nor an object. */
static bool read_plain(struct parser *p, struct silo_json *node) {
    switch (*p->at) {
    case '"':
        p->at++;
        return read_text(p, node);
    case 't':
        return read_word(p, "true", (struct silo_json){.type = SILO_JSON_BOOL, .integer = 1}, node);
    case 'f':
        return read_word(p, "false", (struct silo_json){.type = SILO_JSON_BOOL}, node);
    case 'n':
        return read_word(p, "null", (struct silo_json){.type = SILO_JSON_NULL}, node);
    default:
        return read_number(p, node);
    }
}

bool silo_json_same_text(const struct silo_json *left, const struct silo_json *right) {
    return left->count == right->count && memcmp(left->text, right->text, left->count) == 0;
}

static int by_text(const void *left, const void *right) {
    const struct silo_json *const *a = left, *const *b = right;
    return silo_bytes_order((*a)->text, (*a)->count, (*b)->text, (*b)->count);
}

/* Sets `*twice` to whether a name occurs twice among `count` pairs. Returns false if out of memory.
 */
static bool has_twice(struct parser *p, const struct silo_json *pairs, size_t count, bool *twice) {
    *twice = false;
    if (count <= 16) {
        for (size_t i = 1; i < count && !*twice; i++) {
            for (size_t j = 0; j < i && !*twice; j++)
                *twice = silo_json_same_text(&pairs[2 * i], &pairs[2 * j]);
        }
        return true;
    }
    const struct silo_json **names = malloc(count * sizeof *names);
    if (names == NULL) {
        p->problem = NULL;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        names[i] = &pairs[2 * i];
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 1; i < count && !*twice; i++)
        *twice = silo_json_same_text(names[i], names[i - 1]);
    free(names);
    return true;
}

/* Ends the innermost list or object: moves its items from the stack to the arena. */
static bool closed(struct parser *p, struct open_one open, struct silo_json *node) {
    const size_t items = p->height - open.begins;
    const struct silo_json *from = p->stack + open.begins;
    if (open.object) {
        bool twice;
        if (!has_twice(p, from, items / 2, &twice))
            return false;
        if (twice)
            return fails(p, "a key occurs twice in one JSON object");
    }
    struct silo_json *copy = silo_arena_array(p->arena, items, sizeof *copy);
    if (copy == NULL)
        return false;
    if (items != 0)
        memcpy(copy, from, items * sizeof *copy);
    p->height = open.begins;
    *node = (struct silo_json){.type = open.object ? SILO_JSON_OBJECT : SILO_JSON_LIST,
                               .count = (uint32_t)(open.object ? items / 2 : items),
                               .items = copy};
    return true;
}

/* Reads the name of a member and the colon after it. */
static bool read_name(struct parser *p) {
    struct silo_json name;
    skip_space(p);
    if (p->at == p->end || *p->at != '"')
        return fails(p, "a member without a name");
    p->at++;
    if (!read_text(p, &name))
        return false;
    skip_space(p);
    if (p->at == p->end || *p->at != ':')
        return fails(p, "a name without a colon");
    p->at++;
    return push(p, name);
}

static bool parse(struct parser *p, struct silo_json *document) {
    struct open_one open[SILO_JSON_DEPTH];
    size_t depth = 0;
    for (;;) {
        /* A value begins here. */
        struct silo_json node;
        skip_space(p);
        if (p->at == p->end)
            return fails(p, "the text ends too early");
        if (*p->at == '[' || *p->at == '{') {
            const bool object = *p->at++ == '{';
            if (depth == SILO_JSON_DEPTH)
                return fails(p, "JSON nested too deeply");
            open[depth++] = (struct open_one){p->height, object};
            skip_space(p);
            if (p->at == p->end || *p->at != (object ? '}' : ']')) {
                if (object && !read_name(p))
                    return false;
                continue;
            }
            p->at++;
            if (!closed(p, open[--depth], &node))
                return false;
        } else if (!read_plain(p, &node)) {
            return false;
        }
        /* At the end of a value: the enclosing list or object continues, or ends as well. */
        for (;;) {
            skip_space(p);
            if (depth == 0) {
                *document = node;
                return p->at == p->end || fails(p, "text after the document");
            }
            if (!push(p, node))
                return false;
            const bool object = open[depth - 1].object;
            if (p->at == p->end)
                return fails(p, "the text ends too early");
            const char c = *p->at++;
            if (c == ',') {
                if (object && !read_name(p))
                    return false;
                break;
            }
            if (c != (object ? '}' : ']'))
                return fails(p, "neither a comma nor the end of a list or an object");
            if (!closed(p, open[--depth], &node))
                return false;
        }
    }
}

const struct silo_json *silo_json_parse(char *text, size_t bytes, struct silo_arena *arena,
                                        const char **problem, size_t *offset) {
    *problem = NULL;
    *offset = 0;
    struct silo_json *document =
        bytes < UINT32_MAX ? silo_arena_array(arena, 1, sizeof *document) : NULL;
    if (document == NULL)
        return NULL;
    struct parser p = {.at = text, .end = text + bytes, .arena = arena};
    text[bytes] = 0;
    const bool read = parse(&p, document);
    free(p.stack);
    if (read)
        return document;
    *problem = p.problem;
    *offset = (size_t)(p.at - text);
    return NULL;
}

const struct silo_json *silo_json_member(const struct silo_json *object, const char *name) {
    const size_t length = strlen(name);
    if (object->type != SILO_JSON_OBJECT)
        return NULL;
    for (uint32_t i = 0; i < object->count; i++) {
        const struct silo_json *key = &object->items[2 * i];
        if (key->count == length && memcmp(key->text, name, length) == 0)
            return key + 1;
    }
    return NULL;
}

bool silo_json_is(const struct silo_json *node, const char *text) {
    return node->type == SILO_JSON_TEXT && node->count == strlen(text) &&
           memcmp(node->text, text, node->count) == 0;
}

const char *silo_json_type_name(const struct silo_json *node) {
    static const char *const names[] = {"null",   "bool", "integer", "integer",
                                        "string", "list", "object"};
    return names[node->type];
}
