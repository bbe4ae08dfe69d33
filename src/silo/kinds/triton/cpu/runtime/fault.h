/* What went wrong in a kernel, told to whoever launched it. The entry returns these codes. */
struct silo_fault {
    uint32_t bytes;  /* of the caller's struct, which may be longer */
    int32_t claimed; /* the first to fail has the text */
    char text[1016];
};

enum { SILO_FAULT_ASSERT = 1 };

int snprintf(char *, __SIZE_TYPE__, char const *, ...);

/* Room for the text, which the caller writes with snprintf; 0 if another program failed earlier or
 * the text is not needed. */
static __attribute__((noinline, unused)) __SIZE_TYPE__ silo_fault_claim(void *context) {
    struct silo_fault *fault = (struct silo_fault *)context;
    if (!fault || fault->bytes < sizeof *fault ||
        __atomic_exchange_n(&fault->claimed, 1, __ATOMIC_RELAXED))
        return 0;
    return sizeof fault->text;
}
