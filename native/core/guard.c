#include "guard.h"

#include <stdlib.h>

struct silo_guard_entry *silo_guard_entry_new(const uint64_t *key, uint32_t words, void *binding,
                                              void *keep) {
    struct silo_guard_entry *entry = malloc(sizeof *entry + words * sizeof *key);
    if (entry == NULL)
        return NULL;
    entry->binding = binding;
    entry->keep = keep;
    entry->words = words;
    memcpy(entry->key, key, words * sizeof *key);
    return entry;
}

/* Returns the slot of an entry with this hash and key, or the free slot where it belongs. */
static struct silo_guard_slot *place(struct silo_guard_table *table, uint64_t hash,
                                     const struct silo_guard_entry *key_entry) {
    uint32_t i = (uint32_t)(hash >> 20) & table->mask;
    while (table->slots[i].entry != NULL &&
           !(table->slots[i].hash == hash &&
             silo_guard_equal(table->slots[i].entry, key_entry->key, key_entry->words)))
        i = (i + 1) & table->mask;
    return &table->slots[i];
}

/* Makes a larger table with the entries of `old`, which it keeps as `older`. Returns NULL if out of
 * memory. */
static struct silo_guard_table *larger(struct silo_guard_table *old) {
    const uint32_t mask = old != NULL ? old->mask * 2 + 1 : 7;
    struct silo_guard_table *table =
        calloc(1, sizeof *table + ((size_t)mask + 1) * sizeof *table->slots);
    if (table == NULL)
        return NULL;
    table->mask = mask;
    table->older = old;
    for (uint32_t i = 0; old != NULL && i <= old->mask; i++) {
        const struct silo_guard_slot *slot = &old->slots[i];
        if (slot->entry != NULL)
            *place(table, slot->hash, slot->entry) = *slot;
    }
    table->used = old != NULL ? old->used : 0;
    return table;
}

int silo_guard_insert(struct silo_guard *guard, struct silo_guard_entry *entry, uint64_t hash,
                      struct silo_guard_entry **replaced) {
    struct silo_guard_table *table = guard->table;
    *replaced = NULL;
    if (table == NULL || 2 * (table->used + 1) > table->mask) {
        table = larger(table);
        if (table == NULL)
            return -1;
        __atomic_store_n(&guard->table, table, __ATOMIC_RELEASE);
    }
    struct silo_guard_slot *slot = place(table, hash, entry);
    *replaced = slot->entry;
    if (*replaced == NULL) {
        slot->hash = hash; /* written first: readers check `entry` before `hash` */
        table->used++;
    } else {
        __atomic_store_n(&table->last, NULL, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&slot->entry, entry, __ATOMIC_RELEASE);
    return 0;
}

/* Frees the tables that `table` replaced, but not their entries, which are also in `table`. */
static void free_older(struct silo_guard_table *table) {
    struct silo_guard_table *older = table->older;
    table->older = NULL;
    while (older != NULL) {
        struct silo_guard_table *next = older->older;
        free(older);
        older = next;
    }
}

void silo_guard_free_older(struct silo_guard *guard) {
    if (guard->table != NULL)
        free_older(guard->table);
}

struct silo_guard_table *silo_guard_take(struct silo_guard *guard) {
    return __atomic_exchange_n(&guard->table, NULL, __ATOMIC_ACQ_REL);
}

void silo_guard_table_free(struct silo_guard_table *table,
                           void (*release)(void *binding, void *keep)) {
    if (table == NULL)
        return;
    free_older(table);
    for (uint32_t i = 0; i <= table->mask; i++) {
        struct silo_guard_entry *entry = table->slots[i].entry;
        if (entry == NULL)
            continue;
        release(entry->binding, entry->keep);
        free(entry);
    }
    free(table);
}
