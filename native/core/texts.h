/* Texts that calls give as constants or names of options, each with a number, so that a guard
 * compares numbers. Found without a lock; added with the owner's. Bounded: after SILO_MOST_TEXTS
 * texts no more are added, and calls with other texts are not kept in the guard. */
#ifndef SILO_TEXTS_H
#define SILO_TEXTS_H

#include "base.h"

#define SILO_MOST_TEXTS 4096
#define SILO_NO_TEXT UINT64_MAX

struct silo_text {
    struct silo_text *next; /* of the same bucket */
    uint64_t number;
    size_t length;
    char data[];
};

/* Zeros at first. */
struct silo_texts {
    struct silo_text *buckets[64]; /* owned; atomic: lists that grow at their heads */
    uint64_t count;
};

/* The number of a text, or SILO_NO_TEXT without one. From any thread. */
uint64_t silo_texts_find(const struct silo_texts *texts, const char *text);

/* The same, and a new number for a new text; SILO_NO_TEXT: no room or no memory. One thread at a
 * time. */
uint64_t silo_texts_add(struct silo_texts *texts, const char *text);

void silo_texts_clear(struct silo_texts *texts);

#endif
