/* The part of a thread's context after struct silo_fault, if the context is long enough to have it.
 */
struct silo_waiter {
    uint32_t bytes;
    unsigned char fault[1020];
    uint64_t program;
    void (*wait)(void *context);
};

/* Lets other programs run; called in every iteration of a loop that may wait for another program.
 * It need not return. */
static __attribute__((noinline, unused)) void silo_wait(void *context) {
    struct silo_waiter const *own = (struct silo_waiter const *)context;
    if (own && own->bytes >= sizeof *own && own->wait)
        own->wait(context);
}
