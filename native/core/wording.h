/* Text that grows: messages and reasons. */
#ifndef SILO_WORDING_H
#define SILO_WORDING_H

#include "manifest.h"

#include <stdarg.h>

/* Begins as {0}. Memory that runs out is remembered, and what was to be added is left out. */
struct silo_wording {
    char *data; /* owned: free(); NULL while nothing was added */
    size_t length, room;
    bool failed;
};

/* Where `text` is NULL nobody wants it, and nothing is done. */
void silo_wording_add(struct silo_wording *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void silo_wording_add_list(struct silo_wording *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* A text of a file: what would not print is written as \xNN. */
void silo_wording_add_string(struct silo_wording *text, struct silo_string string);

/* What was added, for reading; "" for nothing. */
const char *silo_wording_read(const struct silo_wording *text);

void silo_wording_clear(struct silo_wording *text);

#endif
