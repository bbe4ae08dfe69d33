/* What a thread of a launch lends its kernel beyond struct silo_fault, where that is so long. */
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
