/* What a launch on the CPU lends its kernel to say what went wrong. The same struct is declared in
 * the emitted C (src/silo/backends/cpu/runtime/fault.h) and in silo.backends.cpu.load. */
#ifndef SILO_CPU_FAULT_H
#define SILO_CPU_FAULT_H

#include <stdint.h>

/* Only the first bytes are set for a launch; the text is written by a kernel that fails. */
struct silo_fault {
    uint32_t bytes;  /* of this struct: what lies beyond is not there */
    int32_t claimed; /* atomic: whoever turns 0 into 1 may write the text, the first to fail */
    char text[1016]; /* what happened, where; ends with 0; "" where the kernel says nothing */
};

_Static_assert(sizeof(struct silo_fault) == 1024, "as emitted code declares it");

#endif
