/* The names that plug-ins add to those a manifest may use, as Python gives them. */
#ifndef SILO_BUNDLE_WORDS_H
#define SILO_BUNDLE_WORDS_H

#include "known_names.h"
#include "python.h"

/* Names in memory of our own. Starts as {0}. */
struct silo_words {
    PyObject *lists[4];    /* owned; they keep the texts */
    const char **names[4]; /* owned */
    size_t count;          /* of all names */
};

/* What `given` is, a tuple of four tuples of texts: kinds of blobs, launch options, kinds of text
 * that a check compiles, kinds of targets. -1 with an exception set; silo_words_end in any case. */
int silo_words_begin(struct silo_words *words, PyObject *given);
void silo_words_end(struct silo_words *words);

/* Borrowed from `words`. */
struct silo_known_names silo_words_known(const struct silo_words *words);

#endif
