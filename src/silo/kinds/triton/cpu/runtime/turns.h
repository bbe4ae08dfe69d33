/* A part of a launch's context, for kernels with atomics. A context that is too short lacks this
 * part. Kernels that may access the same memory call `enter` when they begin and `leave` when they
 * end. A kernel needs no atomics while it runs alone, or while all running kernels lock each block
 * of memory before they change it. */
enum { SILO_LOCKS = 1024, SILO_BLOCK_BITS = 10, SILO_LOOKS = 200 };

struct silo_lock {
    uint32_t taken;
    uint32_t apart[15];
};

struct silo_turns {
    uint32_t (*enter)(void *context, uint32_t wants);
    void (*leave)(void *context);
    void (*yield)(void);
    struct silo_lock *locks;
};

struct silo_turner {
    uint32_t bytes;
    unsigned char rest[1044];
    struct silo_turns const *turns;
};

SILO_INLINE struct silo_turns const *silo_turns_of(void *context) {
    struct silo_turner const *own = (struct silo_turner const *)context;
    return own && own->bytes >= sizeof *own ? own->turns : 0;
}

static __attribute__((noinline, unused)) void silo_await_lock(struct silo_turns const *turns,
                                                              uint32_t *taken) {
    for (int look = 0; __atomic_load_n(taken, __ATOMIC_RELAXED); look++) {
        if (look >= SILO_LOOKS)
            turns->yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

/* Takes the lock of the block of memory that contains `place`, and returns it. */
SILO_INLINE uint32_t *silo_take_lock(struct silo_turns const *turns, void const *place) {
    uint64_t const block = (uint64_t)(uintptr_t)place >> SILO_BLOCK_BITS;
    uint32_t *const taken = &turns->locks[(block ^ block >> 10) % SILO_LOCKS].taken;
    while (__atomic_exchange_n(taken, 1, __ATOMIC_ACQUIRE))
        silo_await_lock(turns, taken);
    return taken;
}

SILO_INLINE void silo_give_lock(uint32_t *taken) {
    __atomic_store_n(taken, 0, __ATOMIC_RELEASE);
}
