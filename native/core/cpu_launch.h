/* A launch on the CPU as the caller requests it. */
#ifndef SILO_CPU_LAUNCH_H
#define SILO_CPU_LAUNCH_H

#include "cpu_fault.h"

#include <stdbool.h>
#include <stdint.h>

/* One kernel of a CPU object: runs programs begin..end-1; 0 or a positive error code. */
typedef int32_t silo_cpu_entry(void *const *params, const uint32_t grid[3], uint64_t begin,
                               uint64_t end, void *scratch, void *context);

#define SILO_CPU_NO_MEMORY (-1)
#define SILO_CPU_INTERRUPTED (-2) /* by `silo_cpu_python.interrupted` */
#define SILO_CPU_REFUSED (-3)     /* programs that wait for each other: the fault's text says why */
#define SILO_CPU_FORKED                                                                            \
    (-4) /* a child of a fork within the launch: other threads had part of it                      \
          */

/* How a launch is shared out: the most programs of one task, and the most threads; 0: the default.
 * Tasks are smaller if they take long (cpu_pace.c). With one program a task, programs may wait for
 * each other: if they do, and the other programs have not begun, threads are added, up to
 * `together` in all. `cooperative`: all programs run at once. */
struct silo_cpu_share {
    uint32_t chunk, threads, together;
    bool cooperative;
};

/* The kernel to launch. */
struct silo_cpu_launch {
    silo_cpu_entry *entry;
    const char *name; /* of the kernel, for messages */
    void *const *params;
    const uint32_t *grid;
    uint64_t total; /* programs, or with `parts` above 1 parts of programs */
    uint32_t parts; /* of each program; 0: as 1 */
    uint64_t scratch_bytes;
    struct silo_cpu_share share;
    struct silo_fault *fault; /* of the first program to fail; NULL: not needed */
    bool holds_lock;          /* the thread holds Python's lock */
};

#endif
