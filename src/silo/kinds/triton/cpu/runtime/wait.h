/* The part of a thread's context after struct silo_fault. A context that is too short lacks this
 * part. */
struct silo_waiter {
    uint32_t bytes;
    unsigned char fault[1020];
    uint64_t program;
    void (*wait)(void *context);
};

/* Lets other programs run; called in every iteration of a loop that may wait for another program.
 * If the launch has failed, this function leaves the kernel by longjmp instead of returning. */
static __attribute__((noinline, unused)) void silo_wait(void *context) {
    struct silo_waiter const *own = (struct silo_waiter const *)context;
    if (own && own->bytes >= sizeof *own && own->wait)
        own->wait(context);
}
