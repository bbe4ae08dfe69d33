/* What a launch lends a kernel where its context is so long: how many parts programs are handed out
 * in, and memory that lasts for a thread's share of the launch. */
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
