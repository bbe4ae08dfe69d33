/* The memory that a CPU launch lends its kernel: room for an error message, and callbacks while it
 * runs. Both are also declared in silo.launch.cpu_objects, and in the emitted C
 * (src/silo/kinds/triton/cpu/runtime/fault.h, emit/kernel_text.py, runtime/wait.h, runtime/turns.h,
 * lower/atomic.py; src/silo/emulation/runtime/silo_threads/grid_barrier.h). */
#ifndef SILO_CPU_FAULT_H
#define SILO_CPU_FAULT_H

#include <stddef.h>
#include <stdint.h>

/* Only the first bytes are set for a launch; the text is written by a kernel that fails. */
struct silo_fault {
    uint32_t bytes;  /* of the struct that this begins; later members are absent */
    int32_t claimed; /* atomic: the first to fail turns 0 into 1 and may write the text */
    char text[1016]; /* the fault and its place; ends with 0; "" without a fault */
};

/* For kernels with atomics (cpu_turns.c), which enter before their first program and leave after
 * their last. `wants` is a set of bits; the answer is one of them, or 0. 1: no other kernel
 * runs meanwhile. 2: other kernels change a place only while they hold the lock of its block. */
struct silo_cpu_turns {
    uint32_t (*enter)(void *context, uint32_t wants);
    void (*leave)(void *context);
    void (*yield)(void);         /* while another holds a lock for long */
    struct silo_cpu_lock *locks; /* SILO_CPU_LOCKS of them */
};

enum { SILO_CPU_LOCKS = 1024 };

struct silo_cpu_lock {
    _Alignas(64) uint32_t taken; /* atomic */
};

/* The barrier of a cooperative launch, which all its programs share; all zero as it begins. Only
 * kernels use it, each member by atomic operations. */
struct silo_cpu_gate {
    uint64_t met;  /* programs that wait at the barrier; from bit 32 on, programs that have ended */
    uint32_t turn; /* how often all have met */
    uint32_t broken; /* whether some wait for programs that have ended */
};

/* The context that each thread of a launch gives its kernel. */
struct silo_context {
    struct silo_fault fault;
    uint64_t program; /* written by the kernel as each begins; UINT64_MAX: the kernel does not write
                         it */
    /* Called in every turn of a loop that may wait for another program; NULL: nothing to call. It
     * need not return. */
    void (*wait)(void *context);
    uint32_t alone;   /* whether no other thread runs programs of this launch */
    uint32_t entered; /* enum silo_cpu_turn: by `turns`, for the kernel that runs */
    const struct silo_cpu_turns *turns; /* NULL: kernels with atomics may run at the same time */
    /* The programs that a kernel gets are parts of programs: this many parts of each; 0 means 1. A
     * kernel that gets SILO_CPU_MOST_PARTS, and no program, writes the most parts that it makes of
     * one. */
    uint32_t parts;
    uint32_t held; /* 0 as the thread begins with a launch, then whether `memory` holds anything */
    uint64_t memory[8];         /* the kernel's own, from call to call */
    struct silo_cpu_gate *gate; /* NULL: not a cooperative launch */
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
