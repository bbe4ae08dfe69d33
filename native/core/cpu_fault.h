/* The context that a CPU launch passes to its kernel: memory for an error message, and functions
 * that the kernel may call. The same structs are declared in silo.launch.cpu_objects and in the
 * emitted C (src/silo/kinds/triton/cpu/runtime/fault.h, emit/kernel_text.py, runtime/wait.h,
 * runtime/turns.h, lower/atomic.py; src/silo/emulation/runtime/silo_threads/grid_barrier.h). */
#ifndef SILO_CPU_FAULT_H
#define SILO_CPU_FAULT_H

#include <stddef.h>
#include <stdint.h>

/* The error message of a kernel. A launch sets `bytes`, `claimed` and the first byte of `text`; a
 * kernel that fails writes the rest of `text`. */
struct silo_fault {
    uint32_t bytes; /* size of the enclosing struct; a kernel must not use members beyond it */
    /* atomic: the first program to fail changes 0 to 1 and may then write the text */
    int32_t claimed;
    char text[1016]; /* the fault and its place, zero-terminated; "" without a fault */
};

/* Functions for kernels with atomics (cpu_turns.c): a kernel calls `enter` before its first program
 * and `leave` after its last. `wants` is the set of modes (bits) that the kernel can run in;
 * `enter` returns the mode that it must run in. Mode 1: no other kernel with atomics runs until
 * `leave`. Mode 2: all running kernels change memory only while they hold the lock of the block
 * that contains the address. Mode 0, which is always allowed: the kernel uses atomic instructions.
 */
struct silo_cpu_turns {
    uint32_t (*enter)(void *context, uint32_t wants);
    void (*leave)(void *context);
    void (*yield)(void);         /* called in a loop while another kernel holds a lock for long */
    struct silo_cpu_lock *locks; /* an array of SILO_CPU_LOCKS locks */
};

enum { SILO_CPU_LOCKS = 1024 };

struct silo_cpu_lock {
    _Alignas(64) uint32_t taken; /* atomic: whether a kernel holds the lock */
};

/* The barrier of a cooperative launch, shared by all its programs. All members are zero when the
 * launch begins; only kernels change them, with atomic operations. */
struct silo_cpu_gate {
    uint64_t met;    /* low 32 bits: programs that wait at the barrier; high 32 bits: programs that
                        have ended */
    uint32_t turn;   /* how many times all programs have met at this barrier */
    uint32_t broken; /* whether programs wait for others that have ended */
};

/* The context that each thread of a launch passes to its kernel. */
struct silo_context {
    struct silo_fault fault;
    uint64_t program; /* the running program's number, written by the kernel; UINT64_MAX if the
                         kernel does not write it */
    /* The kernel calls `wait` in each iteration of a loop that may wait for another program. `wait`
     * may abandon the kernel with longjmp. NULL: do not call. */
    void (*wait)(void *context);
    uint32_t alone;   /* whether this thread runs all programs of this launch */
    uint32_t entered; /* enum silo_cpu_turn: the last result of turns->enter, for turns->leave */
    const struct silo_cpu_turns *turns; /* NULL: the kernel need not enter and leave */
    /* If above 1, each program is split into this many parts, and the program numbers that the
     * kernel gets count parts. If this is SILO_CPU_MOST_PARTS and the range of programs is empty,
     * the kernel replaces it by the most parts into which it can split a program. */
    uint32_t parts;
    uint32_t held;      /* whether `memory` holds anything; 0 when the thread begins the launch */
    uint64_t memory[8]; /* for the kernel's use, kept between its calls in a launch */
    struct silo_cpu_gate *gate; /* NULL unless the launch is cooperative */
};

#define SILO_CPU_MOST_PARTS UINT32_MAX

_Static_assert(sizeof(struct silo_fault) == 1024, "as emitted code declares it");
_Static_assert(offsetof(struct silo_context, program) == 1024 &&
                   offsetof(struct silo_context, wait) == 1032 &&
                   offsetof(struct silo_context, alone) == 1040 &&
                   offsetof(struct silo_context, turns) == 1048 &&
                   offsetof(struct silo_context, parts) == 1056 &&
                   offsetof(struct silo_context, memory) == 1064 &&
                   offsetof(struct silo_context, gate) == 1128 &&
                   sizeof(struct silo_context) == 1136 && sizeof(struct silo_cpu_gate) == 16,
               "as emitted code declares it");

#endif
