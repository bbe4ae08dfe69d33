/* The guard: a table from the words of a call to the binding that serves calls with these words.
 * Compared word by word, so a hit is never false.
 *
 * Threads: silo_guard_find takes no lock. An entry never changes once it can be found; it is
 * published by a release store, and so is the larger table that replaces a full one, which is kept
 * behind the new one until its owner is sure that no thread is still reading it. Functions that
 * change a guard exclude each other by a lock of the owner's. (Python's launcher looks within that
 * lock, which makes the look-up and the reference to its answer one step; it frees at once.) */
#ifndef SILO_GUARD_H
#define SILO_GUARD_H

#include "argument_word.h"

/* `binding` and `keep` are the user's, who releases their memory. */
struct silo_guard_entry {
    void *binding; /* serves calls with this key; never NULL */
    void *keep;    /* whatever has to live as long as the key */
    uint32_t words;
    uint64_t key[];
};

struct silo_guard_slot {
    uint64_t hash;
    struct silo_guard_entry *entry; /* owned; NULL: free. Atomic */
};

/* Open addressing; at least half of the slots are free. */
struct silo_guard_table {
    struct silo_guard_entry *last;  /* the one found last; NULL: none. Atomic; a hint */
    struct silo_guard_table *older; /* owned: the table that it replaced, with the same entries */
    uint32_t mask;
    uint32_t used;
    struct silo_guard_slot slots[];
};

/* All zeros: empty. */
struct silo_guard {
    struct silo_guard_table *table; /* owned; NULL until the first insertion. Atomic */
};

/* Past this many entries a table is better emptied and starts again: only calls with ever new
 * constants get there. */
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
    for (uint32_t i = 0; i < words; i++) { /* short: a call of memcmp costs more */
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

/* The binding for a key, or NULL; `*hash` may be set, and is for silo_guard_insert after NULL. Most
 * calls look like the one before. */
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

/* The number of entries. Under the lock of those who change it. */
SILO_INLINE uint32_t silo_guard_used(const struct silo_guard *guard) {
    return guard->table != NULL ? guard->table->used : 0;
}

/* An entry outside any table: free() it if it does not get into one. NULL: out of memory. */
struct silo_guard_entry *silo_guard_entry_new(const uint64_t *key, uint32_t words, void *binding,
                                              void *keep);

/* Put an entry in, which the guard owns from here on. `*replaced` is the former entry with an equal
 * key, NULL: none; the caller frees it. If threads read without a lock, entries must not be
 * replaced: look again first, under the writers' lock. -1: out of memory, and nothing changed. */
int silo_guard_insert(struct silo_guard *guard, struct silo_guard_entry *entry, uint64_t hash,
                      struct silo_guard_entry **replaced);

/* Free the tables that growth has replaced. No thread may still be looking in one. */
void silo_guard_free_older(struct silo_guard *guard);

/* Empty the guard. Returns its table, which the caller owns from here on, or NULL if it had none.
 * Other threads may still be reading the table. */
struct silo_guard_table *silo_guard_take(struct silo_guard *guard);

/* Free a table that was taken, with those it replaced and all entries; `release` (not NULL) is
 * called for each entry before. No thread may still be looking. */
void silo_guard_table_free(struct silo_guard_table *table,
                           void (*release)(void *binding, void *keep));

#endif
