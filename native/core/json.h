/* Bounded JSON: parsed in place into an arena. No floats, no member twice in an object, no lone
 * surrogates, integers of any length. White space, escapes and the order of members are as the
 * writer of the text liked. */
#ifndef SILO_JSON_H
#define SILO_JSON_H

#include "arena.h"

enum silo_json_type {
    SILO_JSON_NULL,
    SILO_JSON_BOOL,    /* `integer` is 0 or 1 */
    SILO_JSON_INT,     /* `integer` */
    SILO_JSON_BIG_INT, /* beyond 64 bits: `text` has `count` characters, which no 0 ends */
    SILO_JSON_TEXT,    /* `text`: UTF-8 of `count` bytes, which a 0 ends */
    SILO_JSON_LIST,    /* `items`: `count` of them */
    SILO_JSON_OBJECT,  /* `items`: `count` pairs of a text and a value */
};

struct silo_json {
    uint8_t type; /* enum silo_json_type */
    uint32_t count;
    union {
        int64_t integer;
        const char *text;
        const struct silo_json *items;
    };
};

enum {
    SILO_JSON_DEPTH = 256,       /* lists and objects within each other */
    SILO_JSON_MAX_DIGITS = 4300, /* of an integer */
};

/* The document of `bytes` bytes at `text`, which is overwritten and has room for one byte more; the
 * nodes refer to it. NULL with `*problem`, and `*offset` of it; NULL and a NULL problem if memory
 * is out. */
const struct silo_json *silo_json_parse(char *text, size_t bytes, struct silo_arena *arena,
                                        const char **problem, size_t *offset);

/* The member of an object with this name; NULL: none. */
const struct silo_json *silo_json_member(const struct silo_json *object, const char *name);

/* Whether a text is this one. */
bool silo_json_is(const struct silo_json *node, const char *text);

bool silo_json_same_text(const struct silo_json *left, const struct silo_json *right);

/* "list", "integer", ...: the kind of a node, for messages. */
const char *silo_json_type_name(const struct silo_json *node);

#endif
