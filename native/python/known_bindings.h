/* The guard: what is known about a call's arguments as 64-bit words, and the table from those words
 * to bindings. Compared word by word, so a hit is never false.
 *
 * Codes: kind in bits 56-63, a descriptor's block in 24-51, DLPack type code in 16-23, bits in
 * 8-15, flags in 0-7.
 *
 * Threads: no Python code runs between a look-up and taking a reference to its answer, so the GIL
 * is enough; a build without it holds the guard's lock there and where the table changes. */
#ifndef SILO_KNOWN_BINDINGS_H
#define SILO_KNOWN_BINDINGS_H

#include "dlpack.h"
#include "locks.h"
#include "python.h"

enum silo_value_kind {
    SILO_VALUE_ABSENT = 0,  /* left to the config */
    SILO_VALUE_POINTER = 1, /* an array */
    SILO_VALUE_ADDRESS = 2, /* an int given as a pointer */
    SILO_VALUE_NONE = 3,
    SILO_VALUE_INT = 4,
    SILO_VALUE_BOOL = 5,
    SILO_VALUE_FLOAT = 6,
    SILO_VALUE_CONSTANT = 7,   /* a constexpr; the next word is its value or identity */
    SILO_VALUE_DESCRIPTOR = 8, /* a tensor descriptor */
};

enum silo_value_flags {
    SILO_FLAG_ALIGNED16 = 1,
    SILO_FLAG_DIVISIBLE16 = 2,
    SILO_FLAG_EQUAL1 = 4,
    SILO_FLAG_READONLY = 8,
    SILO_FLAG_RANGE32 = 16,    /* a ROCm array: its memory has less than 2 GiB */
    SILO_FLAG_PLAIN_GRID = 32, /* an absent argument, and the call's grid is of integers */
};

#define SILO_CODE(kind, code, bits, flags)                                                         \
    ((uint64_t)(kind) << 56 | (uint64_t)(code) << 16 | (uint64_t)(bits) << 8 | (uint64_t)(flags))

SILO_INLINE unsigned silo_code_kind(uint64_t code) {
    return (unsigned)(code >> 56);
}

SILO_INLINE unsigned silo_code_type(uint64_t code) {
    return (unsigned)(code >> 16) & 0xff;
}

SILO_INLINE unsigned silo_code_bits(uint64_t code) {
    return (unsigned)(code >> 8) & 0xff;
}

SILO_INLINE unsigned silo_code_flags(uint64_t code) {
    return (unsigned)code & 0xff;
}

/* Whether the slot with this code holds a signed 64-bit integer. */
SILO_INLINE bool silo_code_is_integer(uint64_t code, uint64_t slot) {
    const unsigned kind = silo_code_kind(code);
    const bool is_unsigned = silo_code_type(code) == SILO_UINT;
    return kind == SILO_VALUE_BOOL ||
           (kind == SILO_VALUE_INT && (!is_unsigned || (int64_t)slot >= 0));
}

struct silo_entry {
    uint64_t hash;
    uint64_t *key; /* owned */
    uint32_t words;
    PyObject *binding; /* owned */
    PyObject *keep;    /* owned: objects whose identity is in the key */
};

struct silo_guard {
    struct silo_entry *entries; /* open addressing; owned; NULL until the first insertion */
    struct silo_entry *last;    /* the one found last, among the entries; NULL: none */
    uint32_t mask;
    uint32_t used;
    silo_lock lock;
};

/* Past this many entries a table is emptied and starts again: only calls with ever new constants
 * get there. */
#define SILO_GUARD_LIMIT 4096

SILO_INLINE uint64_t silo_guard_mix(uint64_t hash, uint64_t word, uint32_t index) {
    return hash +
           (word + UINT64_C(0x632BE59BD9B4E019) * (index + 1)) * UINT64_C(0x9E3779B97F4A7C15);
}

SILO_INLINE uint64_t silo_guard_finish(uint64_t hash) {
    return hash ^ hash >> 29;
}

SILO_INLINE uint64_t silo_guard_hash(const uint64_t *key, uint32_t words) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < words; i++)
        hash = silo_guard_mix(hash, key[i], i);
    return silo_guard_finish(hash);
}

SILO_INLINE bool silo_guard_equal(const struct silo_entry *entry, const uint64_t *key,
                                  uint32_t words) {
    if (entry->words != words)
        return false;
    const uint64_t *known = entry->key;
    for (uint32_t i = 0; i < words; i++) { /* short: a call of memcmp costs more */
        if (known[i] != key[i])
            return false;
    }
    return true;
}

/* The entry, or NULL. */
SILO_INLINE struct silo_entry *silo_guard_probe(const struct silo_guard *guard, const uint64_t *key,
                                                uint32_t words, uint64_t hash) {
    if (SILO_UNLIKELY(guard->entries == NULL))
        return NULL;
    uint32_t i = (uint32_t)(hash >> 20) & guard->mask;
    for (;; i = (i + 1) & guard->mask) {
        struct silo_entry *entry = &guard->entries[i];
        if (entry->binding == NULL)
            return NULL;
        if (SILO_LIKELY(entry->hash == hash) && SILO_LIKELY(silo_guard_equal(entry, key, words)))
            return entry;
    }
}

/* The binding (a new reference), or NULL without an exception; then `*hash` is the key's. Most
 * calls look like the one before. */
SILO_INLINE PyObject *silo_guard_find(struct silo_guard *guard, const uint64_t *key, uint32_t words,
                                      uint64_t *hash) {
    PyObject *found = NULL;
    SILO_LOCK(&guard->lock);
    struct silo_entry *entry = guard->last;
    if (SILO_UNLIKELY(entry == NULL || !silo_guard_equal(entry, key, words))) {
        *hash = silo_guard_hash(key, words);
        entry = silo_guard_probe(guard, key, words, *hash);
    }
    if (SILO_LIKELY(entry != NULL)) {
        guard->last = entry;
        found = entry->binding;
        Py_INCREF(found);
    }
    SILO_UNLOCK(&guard->lock);
    return found;
}

/* Add or replace; takes its own references. -1 with an exception set. */
int silo_guard_insert(struct silo_guard *guard, const uint64_t *key, uint32_t words, uint64_t hash,
                      PyObject *binding, PyObject *keep);

/* Empty it. May run arbitrary code through the last references to bindings. */
void silo_guard_clear(struct silo_guard *guard);

int silo_guard_traverse(const struct silo_guard *guard, visitproc visit, void *arg);

#endif
