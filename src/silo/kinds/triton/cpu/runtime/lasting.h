/* A part of a launch's context: the number of parts into which each program is divided, and memory
 * that keeps its contents while a thread runs its share of the launch. A context that is too short
 * lacks this part. */
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
