#include "texts.h"

#include <stdlib.h>

static uint64_t hash_of(const char *text, size_t *length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *at = text;
    for (; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    *length = (size_t)(at - text);
    return hash ^ hash >> 32;
}

static uint64_t find(struct silo_text *const *bucket, const char *text, size_t length) {
    const struct silo_text *one = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    for (; one != NULL; one = one->next) {
        if (one->length == length && memcmp(one->data, text, length) == 0)
            return one->number;
    }
    return SILO_NO_TEXT;
}

uint64_t silo_texts_find(const struct silo_texts *texts, const char *text) {
    size_t length;
    const uint64_t hash = hash_of(text, &length);
    return find(&texts->buckets[hash % 64], text, length);
}

uint64_t silo_texts_add(struct silo_texts *texts, const char *text) {
    size_t length;
    const uint64_t hash = hash_of(text, &length);
    struct silo_text **bucket = &texts->buckets[hash % 64];
    const uint64_t known = find(bucket, text, length);
    if (known != SILO_NO_TEXT || texts->count >= SILO_MOST_TEXTS)
        return known;
    struct silo_text *made = malloc(sizeof *made + length + 1); /* owned by the bucket */
    if (made == NULL)
        return SILO_NO_TEXT;
    made->next = *bucket;
    made->number = texts->count++;
    made->length = length;
    memcpy(made->data, text, length + 1);
    __atomic_store_n(bucket, made, __ATOMIC_RELEASE);
    return made->number;
}

void silo_texts_clear(struct silo_texts *texts) {
    for (size_t i = 0; i < sizeof texts->buckets / sizeof *texts->buckets; i++) {
        struct silo_text *one = texts->buckets[i];
        while (one != NULL) {
            struct silo_text *next = one->next;
            free(one);
            one = next;
        }
        texts->buckets[i] = NULL;
    }
    texts->count = 0;
}
