/* The CPU's threads: programs of one launch are handed out in order, in chunks. */
#ifndef SILO_CPU_POOL_H
#define SILO_CPU_POOL_H

#include <stdint.h>

/* One kernel of a CPU object: runs programs begin..end-1; 0 or a positive error code. */
typedef int32_t silo_cpu_entry(void *const *params, const uint32_t grid[3], uint64_t begin,
                               uint64_t end, void *scratch, void *context);

#define SILO_CPU_NO_MEMORY (-1)

/* How a launch is shared out: programs of one task, and the most threads; 0: as usual. */
struct silo_cpu_share {
    uint32_t chunk, threads;
};

/* Run `total` programs. Returns 0, the first positive code of the kernel, or SILO_CPU_NO_MEMORY.
 * `context` goes to the kernel as it is: a struct silo_fault, or NULL.
 * `cost` is the hint of struct silo_function. Safe from any thread: a launch that finds the pool
 * busy runs on the calling thread. */
int silo_cpu_run(silo_cpu_entry *entry, void *const *params, const uint32_t grid[3], uint64_t total,
                 uint64_t scratch_bytes, struct silo_cpu_share share, void *context,
                 uint64_t *cost);

/* Threads a launch may use, the calling one included. */
int silo_cpu_threads(void);

/* Change that number (at least 1). Waits for a launch in progress. 0, or an errno. */
int silo_cpu_set_threads(int count);

/* The number of processors this process may run on. */
int silo_cpu_affinity(void);

/* Register the fork handlers; once. 0, or an errno. */
int silo_cpu_pool_init(void);

#endif
