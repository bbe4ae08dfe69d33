/* Text that grows: messages and reasons. */
#ifndef SILO_WORDING_H
#define SILO_WORDING_H

#include "manifest.h"

#include <stdarg.h>

/* Begins as {0}. If memory runs out, this is remembered, and the addition is left out. */
struct silo_wording {
    char *data; /* owned: free(); NULL while nothing was added */
    size_t length, room;
    bool failed;
};

/* If `text` is NULL, the wording is not needed, and nothing is done. */
void silo_wording_add(struct silo_wording *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void silo_wording_add_list(struct silo_wording *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* A text of a file: what would not print is written as \xNN. */
void silo_wording_add_string(struct silo_wording *text, struct silo_string string);

/* The added text, for reading; "" if empty. */
const char *silo_wording_read(const struct silo_wording *text);

void silo_wording_clear(struct silo_wording *text);

#endif
