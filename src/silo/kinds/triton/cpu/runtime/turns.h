/* What a launch lends a kernel with atomics, where its context is so long: kernels that may meet in
 * memory say when they begin and end, and one that runs by itself need not be atomic. */
struct silo_turns {
    uint32_t (*enter)(void *context, uint32_t wants_alone);
    void (*leave)(void *context);
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
