/* Texts of parsed JSON: its canonical form, and what two documents have in common. */
#ifndef SILO_JSON_TEXT_H
#define SILO_JSON_TEXT_H

#include "json.h"

/* A text that grows. Starts as {0}; `data` is owned, and NULL while it is empty. */
struct silo_json_text {
    char *data;
    size_t bytes, room;
    bool failed; /* memory was out: the text is incomplete */
};

void silo_json_text_free(struct silo_json_text *text);
void silo_json_put_bytes(struct silo_json_text *text, const char *data, size_t bytes);
void silo_json_put_word(struct silo_json_text *text, const char *word);               /* as it is */
void silo_json_put_text(struct silo_json_text *text, const char *data, size_t bytes); /* quoted */

/* Canonical JSON: members sorted, no white space, no escapes but those JSON demands. */
void silo_json_put(struct silo_json_text *text, const struct silo_json *node);

/* How many characters Python's `json.dumps` writes. */
uint64_t silo_json_dumped(const struct silo_json *node);

/* Whether two documents have one canonical form. */
bool silo_json_equal(const struct silo_json *left, const struct silo_json *right);

/* Equal for equal documents. */
uint64_t silo_json_hash(const struct silo_json *node);

/* How many characters a text has, which UTF-8 may write in several bytes each. */
size_t silo_json_characters(const char *data, size_t bytes);

#endif
