/* A JSON parser with limits, which parses in place into an arena. It refuses floats, duplicate
 * members and lone surrogates, and accepts integers of any length up to SILO_JSON_MAX_DIGITS. White
 * space, escapes and members in any order are accepted. */
#ifndef SILO_JSON_H
#define SILO_JSON_H

#include "arena.h"

enum silo_json_type {
    SILO_JSON_NULL,
    SILO_JSON_BOOL,    /* `integer` is 0 or 1 */
    SILO_JSON_INT,     /* the value in `integer` */
    SILO_JSON_BIG_INT, /* beyond 64 bits: `count` digits in `text`, not zero-terminated */
    SILO_JSON_TEXT,    /* `text`: `count` bytes of UTF-8, zero-terminated */
    SILO_JSON_LIST,    /* `count` values in `items` */
    SILO_JSON_OBJECT,  /* `count` pairs in `items`: a name and a value each */
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
    SILO_JSON_DEPTH = 256,       /* nested lists and objects */
    SILO_JSON_MAX_DIGITS = 4300, /* digits of an integer */
};

/* Parses `bytes` bytes at `text`. The text is overwritten, must have room for one more byte, and
 * must live as long as the nodes, which point into it. Returns the outermost value; NULL with
 * `*problem` (the fault as text; NULL if out of memory) and `*offset` (the position of the fault).
 */
const struct silo_json *silo_json_parse(char *text, size_t bytes, struct silo_arena *arena,
                                        const char **problem, size_t *offset);

/* Returns the value of an object's member with this name, or NULL. */
const struct silo_json *silo_json_member(const struct silo_json *object, const char *name);

/* Whether a node is a string that equals `text`. */
bool silo_json_is(const struct silo_json *node, const char *text);

bool silo_json_same_text(const struct silo_json *left, const struct silo_json *right);

/* Returns the kind of a node for messages: "list", "integer", ... */
const char *silo_json_type_name(const struct silo_json *node);

#endif
