/* Numbers for the texts that calls pass as constants or names of options, so that the guard
 * compares numbers. Finding needs no lock; adding needs the lock of the table's owner. After
 * SILO_MOST_TEXTS texts no more are added, and calls with other texts are not put into the guard.
 */
#ifndef SILO_TEXTS_H
#define SILO_TEXTS_H

#include "base.h"

#define SILO_MOST_TEXTS 4096
#define SILO_NO_TEXT UINT64_MAX

struct silo_text {
    struct silo_text *next; /* next text of the same bucket */
    uint64_t number;
    size_t length;
    char data[];
};

/* A hash table from texts to numbers. Initialize with zeros. */
struct silo_texts {
    struct silo_text *buckets[64]; /* owned, atomic: linked lists that grow at their heads */
    uint64_t count;
};

/* Returns the number of a text, or SILO_NO_TEXT if it has none. May be called from any thread. */
uint64_t silo_texts_find(const struct silo_texts *texts, const char *text);

/* Returns the number of a text; a new text gets a number. Returns SILO_NO_TEXT if there are too
 * many texts or if out of memory. The caller holds the lock of the table's owner. */
uint64_t silo_texts_add(struct silo_texts *texts, const char *text);

void silo_texts_clear(struct silo_texts *texts);

#endif
