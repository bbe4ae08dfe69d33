/* A text that grows, for messages and reasons. */
#ifndef SILO_WORDING_H
#define SILO_WORDING_H

#include "manifest.h"

#include <stdarg.h>

/* A text that grows. Initialize with {0}. If memory runs out, `failed` is set and the addition is
 * left out. */
struct silo_wording {
    char *data; /* owned: release with free(); NULL while it is empty */
    size_t length, room;
    bool failed;
};

/* Adds a printf-formatted text. `text` may be NULL, if the caller does not need it. */
void silo_wording_add(struct silo_wording *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void silo_wording_add_list(struct silo_wording *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Adds a text from a file; bytes that cannot be displayed are written as \xNN. */
void silo_wording_add_string(struct silo_wording *text, struct silo_string string);

/* Returns the text; "" while it is empty. */
const char *silo_wording_read(const struct silo_wording *text);

void silo_wording_clear(struct silo_wording *text);

#endif
