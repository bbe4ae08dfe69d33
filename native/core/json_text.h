/* Writes parsed JSON as canonical text, and compares JSON values. */
#ifndef SILO_JSON_TEXT_H
#define SILO_JSON_TEXT_H

#include "json.h"

/* A text that grows. Initialize with {0}. `data` is owned, and NULL while the text is empty. */
struct silo_json_text {
    char *data;
    size_t bytes, room;
    bool failed; /* out of memory: the text is incomplete */
};

void silo_json_text_free(struct silo_json_text *text);
void silo_json_put_bytes(struct silo_json_text *text, const char *data, size_t bytes);
/* Appends `word` without quotes and escapes. */
void silo_json_put_word(struct silo_json_text *text, const char *word);
/* Appends `data` as a JSON string, with quotes and escapes. */
void silo_json_put_text(struct silo_json_text *text, const char *data, size_t bytes);

/* Adds a value as canonical JSON: members sorted, no white space, only the escapes that JSON
 * requires. */
void silo_json_put(struct silo_json_text *text, const struct silo_json *node);

/* Returns the number of characters that Python's `json.dumps` writes for a value. */
uint64_t silo_json_dumped(const struct silo_json *node);

/* Whether two values have the same canonical text. */
bool silo_json_equal(const struct silo_json *left, const struct silo_json *right);

/* Returns a hash that is equal for values with the same canonical text. */
uint64_t silo_json_hash(const struct silo_json *node);

/* Returns the number of characters (code points) of a UTF-8 text. */
size_t silo_json_characters(const char *data, size_t bytes);

#endif
