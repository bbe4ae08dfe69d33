/* Names that plug-ins add to the names that a manifest may use. */
#ifndef SILO_BUNDLE_WORDS_H
#define SILO_BUNDLE_WORDS_H

#include "known_names.h"
#include "python.h"

/* The added names. Starts as {0}. */
struct silo_words {
    PyObject *lists[4];    /* owned: lists that keep the texts alive */
    const char **names[4]; /* owned arrays of pointers into these texts */
    size_t count;          /* number of names in all lists together */
};

/* Reads the names from `names`, a tuple of four tuples of texts: kinds of blobs, launch options,
 * kinds of text that a check compiles, kinds of targets. Returns -1 with an exception set;
 * silo_words_end is to be called in either case. */
int silo_words_begin(struct silo_words *plugin_names, PyObject *names);
void silo_words_end(struct silo_words *names);

/* Returns the names as the struct that the reader takes; its arrays are borrowed from `names`. */
struct silo_known_names silo_words_known(const struct silo_words *names);

#endif
