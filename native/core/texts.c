#include "texts.h"

#include <stdlib.h>

static uint64_t hash_of(const char *text, size_t *length) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *cursor = text;
    for (; *cursor != '\0'; cursor++)
        hash = (hash ^ (unsigned char)*cursor) * UINT64_C(0x100000001b3);
    *length = (size_t)(cursor - text);
    return hash ^ hash >> 32;
}

static uint64_t find(struct silo_text *const *bucket, const char *text, size_t length) {
    const struct silo_text *entry = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    for (; entry != NULL; entry = entry->next) {
        if (entry->length == length && memcmp(entry->data, text, length) == 0)
            return entry->number;
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
    const uint64_t number = find(bucket, text, length);
    if (number != SILO_NO_TEXT || texts->count >= SILO_MOST_TEXTS)
        return number;
    struct silo_text *entry = malloc(sizeof *entry + length + 1); /* owned by the bucket */
    if (entry == NULL)
        return SILO_NO_TEXT;
    entry->next = *bucket;
    entry->number = texts->count++;
    entry->length = length;
    memcpy(entry->data, text, length + 1);
    __atomic_store_n(bucket, entry, __ATOMIC_RELEASE);
    return entry->number;
}

void silo_texts_clear(struct silo_texts *texts) {
    for (size_t i = 0; i < sizeof texts->buckets / sizeof *texts->buckets; i++) {
        struct silo_text *entry = texts->buckets[i];
        while (entry != NULL) {
            struct silo_text *next = entry->next;
            free(entry);
            entry = next;
        }
        texts->buckets[i] = NULL;
    }
    texts->count = 0;
}
