/* The parameters of a launch on the CPU. */
#ifndef SILO_CPU_LAUNCH_H
#define SILO_CPU_LAUNCH_H

#include "cpu_fault.h"

#include <stdbool.h>
#include <stdint.h>

/* The type of a kernel function in a CPU object. It runs programs begin..end-1 and returns 0 or a
 * positive error code. */
typedef int32_t silo_cpu_entry(void *const *params, const uint32_t grid[3], uint64_t begin,
                               uint64_t end, void *scratch, void *context);

#define SILO_CPU_NO_MEMORY (-1)
#define SILO_CPU_INTERRUPTED (-2) /* `silo_cpu_python.interrupted` returned true */
/* Programs wait for each other and cannot all run; the fault's text has the reason. */
#define SILO_CPU_REFUSED (-3)
/* This is a child forked within the launch, and other threads of the parent ran part of it. */
#define SILO_CPU_FORKED (-4)

/* How a launch is divided among threads. `chunk`: the most programs that a thread takes at once (0:
 * the default); chunks are smaller if programs take long (cpu_pace.c). `threads`: the most threads
 * (0: the default). With a chunk of 1, programs may wait for each other: if one waits for a program
 * that has not begun, threads are added, up to `together` in all. `cooperative`: all programs run
 * at once. */
struct silo_cpu_share {
    uint32_t chunk, threads, together;
    bool cooperative;
};

/* A launch: the kernel, its parameters and its grid. */
struct silo_cpu_launch {
    silo_cpu_entry *entry;
    const char *name; /* the kernel's name, for messages */
    void *const *params;
    const uint32_t *grid;
    uint64_t total; /* number of programs, or of parts of programs if `parts` is above 1 */
    uint32_t parts; /* parts into which each program is split; 0 means 1 */
    uint64_t scratch_bytes;
    struct silo_cpu_share share;
    struct silo_fault *fault; /* receives the fault of the first program to fail; may be NULL */
    bool holds_lock;          /* whether the calling thread holds the GIL */
};

#endif
