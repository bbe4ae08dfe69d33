/* What went wrong in a kernel, told to whoever launched it. Codes are what the entry returns. */
struct silo_fault {
    uint32_t bytes;  /* of the caller's struct, which may be longer */
    int32_t claimed; /* the first to fail has the text */
    char text[1016];
};

enum { SILO_FAULT_ASSERT = 1 };

int snprintf(char *, __SIZE_TYPE__, char const *, ...);

/* Room for the text, which the caller writes with snprintf; 0 where another program failed before
 * or nobody wants to know. */
static __attribute__((noinline, unused)) __SIZE_TYPE__ silo_fault_claim(void *context) {
    struct silo_fault *fault = (struct silo_fault *)context;
    if (!fault || fault->bytes < sizeof *fault ||
        __atomic_exchange_n(&fault->claimed, 1, __ATOMIC_RELAXED))
        return 0;
    return sizeof fault->text;
}
