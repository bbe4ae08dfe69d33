/* Scratch memory for the kernels of a plan on a GPU. It belongs to the plan, with a piece for each
 * node and kind of memory, so that nodes can run at the same time. Replays of a graph run one after
 * the other, so that they can share the memory. */
#ifndef SILO_PLAN_SCRATCH_H
#define SILO_PLAN_SCRATCH_H

#include "plan_backend.h"

/* A piece of scratch memory: `each` bytes for each of up to `programs` programs, aligned to
 * `align`. */
struct silo_plan_piece {
    const char *kernel; /* for messages */
    uint64_t each, programs;
    uint32_t align;
    uint64_t address; /* filled by silo_plan_scratch_open */
};

struct silo_plan_scratch {
    struct silo_gpu_device *device; /* NULL if no memory is allocated */
    uint64_t address;
};

/* Returns the number of programs of a grid; UINT64_MAX if it does not fit 64 bits. */
uint64_t silo_plan_programs(const uint32_t grid[3]);

/* Returns the number of programs to allocate scratch memory for: the next power of two, so that the
 * grid may grow. */
uint64_t silo_plan_scratch_room(uint64_t programs);

/* Allocates the memory and sets the address of each piece. On failure returns -1 with
 * SILO_ERROR_MEMORY or SILO_ERROR_GRID (more than 2^63 bytes). */
int silo_plan_scratch_open(struct silo_plan_scratch *scratch, struct silo_gpu_device *device,
                           struct silo_plan_piece *pieces, uint32_t count, silo_error *error);

/* Frees the memory, which waits for the device. */
void silo_plan_scratch_close(struct silo_plan_scratch *scratch);

/* Returns 0 unless the replays launch the kernels one by one, without a graph. Then returns -1 with
 * SILO_ERROR_UNSUPPORTED and the reason why there is no graph: two replays may overlap on two
 * streams, so that they cannot share scratch memory. */
int silo_plan_scratch_check(const struct silo_plan_backend *backend, const void *state,
                            const char *kernel, silo_error *error);

#endif
