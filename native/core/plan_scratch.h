/* Scratch memory of the kernels of a plan on a GPU. It is the plan's own, a piece for each node and
 * kind, so that nodes may run at the same time; replays of one graph run one after the other. */
#ifndef SILO_PLAN_SCRATCH_H
#define SILO_PLAN_SCRATCH_H

#include "plan_backend.h"

/* One piece: `each` bytes for each of up to `programs` programs, at a multiple of `align`. */
struct silo_plan_piece {
    const char *kernel; /* for messages */
    uint64_t each, programs;
    uint32_t align;
    uint64_t address; /* filled by silo_plan_scratch_open */
};

struct silo_plan_scratch {
    struct silo_gpu_device *device; /* NULL: nothing is held */
    uint64_t address;
};

/* The programs of a grid; UINT64_MAX where 64 bits do not hold them. */
uint64_t silo_plan_programs(const uint32_t grid[3]);

/* Room for a grid that may grow: the next power of two. */
uint64_t silo_plan_scratch_room(uint64_t programs);

/* Take the memory. -1 with SILO_ERROR_MEMORY or SILO_ERROR_GRID (more than 2^63 bytes). */
int silo_plan_scratch_open(struct silo_plan_scratch *scratch, struct silo_gpu_device *device,
                           struct silo_plan_piece *pieces, uint32_t count, silo_error *error);

/* Give it back, which waits for the device. */
void silo_plan_scratch_close(struct silo_plan_scratch *scratch);

/* Replays that are launched one by one may overlap on two streams, so no memory of a plan serves
 * them: -1 with SILO_ERROR_UNSUPPORTED and the reason for that way. */
int silo_plan_scratch_check(const struct silo_plan_backend *backend, const void *state,
                            const char *kernel, silo_error *error);

#endif
