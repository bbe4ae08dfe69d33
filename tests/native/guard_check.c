/* The guard table: what is put in is found, by threads that look without a lock while it grows; for
 * the sanitizers. */
#include "guard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 3000, LONGEST = 9, READERS = 3, AGAIN = 400 };

static struct silo_guard guard;
static uint32_t published; /* keys before it are in the table */
static unsigned long long released;
static bool ended;

/* Key number `i`: keys of different lengths that begin alike, and words that differ in one bit. */
static uint32_t make_key(uint64_t i, uint64_t key[LONGEST]) {
    const uint32_t words = 1 + (uint32_t)(i % LONGEST);
    for (uint32_t w = 0; w < words; w++)
        key[w] = SILO_CODE(SILO_VALUE_INT, 0, 32, 0) + (w == 0 ? i << 3 : w);
    return words;
}

static void *binding_of(uint64_t i) {
    return (void *)(uintptr_t)(i + 1);
}

static void fail(const char *what, uint64_t i) {
    fprintf(stderr, "%s: key %llu\n", what, (unsigned long long)i);
    exit(1);
}

static void check(uint64_t i, bool there) {
    uint64_t key[LONGEST], hash = 0;
    const uint32_t words = make_key(i, key);
    void *found = silo_guard_find(&guard, key, words, &hash);
    if (found != (there ? binding_of(i) : NULL))
        fail(there ? "not found" : "found what is not there", i);
    if (!there && hash != silo_guard_hash(key, words))
        fail("no hash for what is not there", i);
}

/* One that may be put in just now: it is there whole or not at all. */
static void check_next(uint64_t i) {
    uint64_t key[LONGEST], hash;
    const uint32_t words = make_key(i, key);
    for (int turn = 0; turn < 20; turn++) {
        void *found = silo_guard_find(&guard, key, words, &hash);
        if (found != NULL && found != binding_of(i))
            fail("found another", i);
    }
}

static void *read_keys(void *seed) {
    uint64_t state = (uint64_t)(uintptr_t)seed;
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
        const uint32_t there = __atomic_load_n(&published, __ATOMIC_ACQUIRE);
        if (there == 0)
            continue;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t i = (state >> 33) % there;
        check(i, true);
        check(i, true); /* the last one found */
        check(KEYS + i, false);
        check_next(there);
    }
    return NULL;
}

static void put(uint64_t i) {
    uint64_t key[LONGEST], hash = 0;
    struct silo_guard_entry *replaced;
    const uint32_t words = make_key(i, key);
    if (silo_guard_find(&guard, key, words, &hash) != NULL)
        fail("there before it was put in", i);
    struct silo_guard_entry *entry = silo_guard_entry_new(key, words, binding_of(i), NULL);
    if (entry == NULL || silo_guard_insert(&guard, entry, hash, &replaced) != 0 || replaced != NULL)
        fail("not put in", i);
}

/* The same key again, where nobody else looks. */
static void put_again(uint64_t i) {
    uint64_t key[LONGEST];
    struct silo_guard_entry *replaced;
    const uint32_t words = make_key(i, key);
    struct silo_guard_entry *entry = silo_guard_entry_new(key, words, binding_of(i), NULL);
    if (entry == NULL ||
        silo_guard_insert(&guard, entry, silo_guard_hash(key, words), &replaced) != 0)
        fail("not put in again", i);
    if (replaced == NULL || replaced->binding != binding_of(i))
        fail("nothing was replaced", i);
    free(replaced);
    check(i, true);
}

static void release(void *binding, void *keep) {
    (void)keep;
    released += (uintptr_t)binding;
}

int main(void) {
    pthread_t readers[READERS];
    check(0, false);
    for (uintptr_t i = 0; i < READERS; i++)
        pthread_create(&readers[i], NULL, read_keys, (void *)(i + 1));
    for (uint32_t i = 0; i < KEYS; i++) {
        put(i);
        __atomic_store_n(&published, i + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    silo_guard_free_older(&guard);
    for (uint32_t i = 0; i < KEYS; i++)
        check(i, true);
    for (uint32_t i = 0; i < AGAIN; i++)
        put_again(i);
    if (silo_guard_used(&guard) != KEYS)
        fail("entries are counted wrong", silo_guard_used(&guard));
    struct silo_guard_table *table = silo_guard_take(&guard);
    check(0, false);
    put(0); /* an emptied one is used again */
    check(0, true);
    silo_guard_table_free(table, release);
    silo_guard_table_free(silo_guard_take(&guard), release);
    silo_guard_table_free(NULL, release);
    if (released != (unsigned long long)KEYS * (KEYS + 1) / 2 + 1)
        fail("entries were not released once each", released);
    puts("ok");
    return 0;
}
