/* The part of a thread's context beyond struct silo_fault, if the context is this long. */
struct silo_waiter {
    uint32_t bytes;
    unsigned char fault[1020];
    uint64_t program;
    void (*wait)(void *context);
};

/* In every turn of a loop that may wait for another program: lets others run. Need not return. */
static __attribute__((noinline, unused)) void silo_wait(void *context) {
    struct silo_waiter const *own = (struct silo_waiter const *)context;
    if (own && own->bytes >= sizeof *own && own->wait)
        own->wait(context);
}
