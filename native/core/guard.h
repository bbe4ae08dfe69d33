/* The guard: a hash table from the words of a call (its key) to the binding (the loaded code) that
 * serves such calls. Keys are compared word by word, so that a hit is never false.
 *
 * Threads: silo_guard_find takes no lock. An entry never changes once it is in the table; it is
 * published with a release store. When a table is full, a larger table replaces it and is published
 * in the same way; the old table is kept as `older` until the owner knows that no thread reads it.
 * The owner must hold a lock to change a guard. (Python's launcher also holds that lock while it
 * searches, so that finding a binding and taking a reference to it are one step; it frees old
 * tables at once.) */
#ifndef SILO_GUARD_H
#define SILO_GUARD_H

#include "argument_word.h"

/* An entry of a guard's table: the key of a call (`words` words) and the binding (the loaded code)
 * that serves calls with this key. The caller owns the memory of `binding` and `keep`. */
struct silo_guard_entry {
    void *binding; /* serves calls with this key; never NULL */
    void *keep;    /* memory that must live as long as the key; may be NULL */
    uint32_t words;
    uint64_t key[];
};

struct silo_guard_slot {
    uint64_t hash;
    struct silo_guard_entry *entry; /* owned, atomic; NULL: the slot is free */
};

/* A hash table with open addressing. At least half of the slots are free. */
struct silo_guard_table {
    struct silo_guard_entry *last; /* atomic: a hint, the entry that was found last; may be NULL */
    /* owned: the table that this one replaced, with the same entries */
    struct silo_guard_table *older;
    uint32_t mask;
    uint32_t used;
    struct silo_guard_slot slots[];
};

/* A guard, which holds its current table. An empty guard is all zeros. */
struct silo_guard {
    struct silo_guard_table *table; /* owned, atomic; NULL before the first insertion */
};

/* The owner should empty a guard with more entries than this: only calls whose constants keep
 * changing make so many. */
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

SILO_INLINE bool silo_guard_equal(const struct silo_guard_entry *entry, const uint64_t *key,
                                  uint32_t words) {
    if (entry->words != words)
        return false;
    /* compared in a loop: keys are short, and a call of memcmp costs more */
    for (uint32_t i = 0; i < words; i++) {
        if (entry->key[i] != key[i])
            return false;
    }
    return true;
}

SILO_INLINE struct silo_guard_entry *silo_guard_probe(const struct silo_guard_table *table,
                                                      const uint64_t *key, uint32_t words,
                                                      uint64_t hash) {
    uint32_t i = (uint32_t)(hash >> 20) & table->mask;
    for (;; i = (i + 1) & table->mask) {
        const struct silo_guard_slot *slot = &table->slots[i];
        struct silo_guard_entry *entry = __atomic_load_n(&slot->entry, __ATOMIC_ACQUIRE);
        if (entry == NULL)
            return NULL;
        if (SILO_LIKELY(slot->hash == hash) && SILO_LIKELY(silo_guard_equal(entry, key, words)))
            return entry;
    }
}

/* Returns the binding for a key, or NULL. If it returns NULL, `*hash` is set for silo_guard_insert.
 * The entry that was found last is tried first, because most calls are like the one before. */
SILO_INLINE void *silo_guard_find(const struct silo_guard *guard, const uint64_t *key,
                                  uint32_t words, uint64_t *hash) {
    struct silo_guard_table *table = __atomic_load_n(&guard->table, __ATOMIC_ACQUIRE);
    if (SILO_UNLIKELY(table == NULL)) {
        *hash = silo_guard_hash(key, words);
        return NULL;
    }
    struct silo_guard_entry *entry = __atomic_load_n(&table->last, __ATOMIC_ACQUIRE);
    if (SILO_UNLIKELY(entry == NULL || !silo_guard_equal(entry, key, words))) {
        *hash = silo_guard_hash(key, words);
        entry = silo_guard_probe(table, key, words, *hash);
        if (entry == NULL)
            return NULL;
        __atomic_store_n(&table->last, entry, __ATOMIC_RELEASE);
    }
    return entry->binding;
}

/* Returns the number of entries. The caller holds the lock of the guard's owner. */
SILO_INLINE uint32_t silo_guard_used(const struct silo_guard *guard) {
    return guard->table != NULL ? guard->table->used : 0;
}

/* Makes an entry for silo_guard_insert; release it with free() if it is not inserted. Returns NULL
 * if out of memory. */
struct silo_guard_entry *silo_guard_entry_new(const uint64_t *key, uint32_t words, void *binding,
                                              void *keep);

/* Inserts an entry, which the guard then owns. `*replaced` is the former entry with the same key,
 * which the caller frees, or NULL. If other threads read without a lock, entries must not be
 * replaced: the caller takes the lock of the guard's owner, and inserts only if the key is still
 * missing. Returns -1 if out of memory; the guard is then unchanged. */
int silo_guard_insert(struct silo_guard *guard, struct silo_guard_entry *entry, uint64_t hash,
                      struct silo_guard_entry **replaced);

/* Frees the tables that larger ones have replaced. No thread may be reading them. */
void silo_guard_free_older(struct silo_guard *guard);

/* Empties the guard. Returns its table, which the caller then owns, or NULL if it had none. Other
 * threads may still be reading the table. */
struct silo_guard_table *silo_guard_take(struct silo_guard *guard);

/* Frees a table that was taken, the tables that it replaced, and all entries. Calls `release` (not
 * NULL) for each entry before the entry is freed. No thread may be reading the table. */
void silo_guard_table_free(struct silo_guard_table *table,
                           void (*release)(void *binding, void *keep));

#endif
