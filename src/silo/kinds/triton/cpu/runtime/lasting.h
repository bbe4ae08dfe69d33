/* The part of a launch's context, if the context is long enough to have it, with the number of
 * parts into which programs are divided, and with memory that keeps its contents for a thread's
 * whole share of the launch. */
struct silo_lasting {
    uint32_t bytes;
    unsigned char rest[1052];
    uint32_t parts, held;
    uint64_t memory[8];
};

SILO_INLINE struct silo_lasting *silo_lasting_of(void *context) {
    struct silo_lasting *own = (struct silo_lasting *)context;
    return own && own->bytes >= sizeof *own ? own : 0;
}
