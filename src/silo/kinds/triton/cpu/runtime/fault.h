/* The fault of a kernel, reported to the code that launched it. The kernel's entry returns these
 * codes. */
struct silo_fault {
    uint32_t bytes;  /* the size of the caller's struct, which may be longer */
    int32_t claimed; /* 1 once a program has failed; the first one writes the text */
    char text[1016];
};

enum { SILO_FAULT_ASSERT = 1 };

int snprintf(char *, __SIZE_TYPE__, char const *, ...);

/* Returns the bytes available for the text, which the caller writes with snprintf; 0 if another
 * program failed earlier or the text is not needed. */
static __attribute__((noinline, unused)) __SIZE_TYPE__ silo_fault_claim(void *context) {
    struct silo_fault *fault = (struct silo_fault *)context;
    if (!fault || fault->bytes < sizeof *fault ||
        __atomic_exchange_n(&fault->claimed, 1, __ATOMIC_RELAXED))
        return 0;
    return sizeof fault->text;
}
