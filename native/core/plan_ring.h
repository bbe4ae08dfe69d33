/* The ring of blocks that passes updates to the replays of a plan's graph (plan_block.h), and the
 * kernel that reads them. */
#ifndef SILO_PLAN_RING_H
#define SILO_PLAN_RING_H

#include "device.h"
#include "driver.h"
#include "error.h"
#include "plan_block.h"

struct silo_plan_ring {
    struct silo_gpu_device *device;
    struct silo_plan_report *report; /* owned: pinned memory, followed by the blocks */
    uint8_t *blocks;
    size_t stride;    /* size of a block in bytes */
    uint32_t slots;   /* number of blocks: a power of two */
    uint64_t address; /* owned: device memory, which begins with a struct silo_plan_device */
    uint64_t replays; /* number of replays launched */
    uint64_t wait_ns; /* the longest wait for a free block */
    void *event;      /* owned, never recorded: querying it fails if the context is lost */
};

/* Returns the updating kernel, which is loaded once on each device and never unloaded; NULL with
 * `error`. Its only parameter is the ring's `address`. */
const struct silo_function *silo_plan_updater(struct silo_gpu_device *device, silo_error *error);

/* Makes a ring of at least `slots` blocks of `stride` bytes, a multiple of 16, with device memory
 * for `count` nodes and `run_count` runs. Called between silo_gpu_enter and silo_gpu_leave, as is
 * the next function. After -1 with `error` the ring must not be retired. */
int silo_plan_ring_make(struct silo_plan_ring *ring, struct silo_gpu_device *device, size_t stride,
                        uint32_t slots, uint32_t count, uint32_t run_count, silo_error *error);

/* Writes the nodes and runs that updates refer to. Call it before the first replay. */
int silo_plan_ring_write(const struct silo_plan_ring *ring,
                         const struct silo_plan_device_node *nodes, uint32_t count,
                         const struct silo_plan_run *runs, uint32_t run_count, silo_error *error);

/* Returns the block for the next replay, once no earlier replay reads it. On failure returns NULL
 * with `error`: an update failed on the device, its context is lost, or no block became free within
 * `wait_ns`. The block is pinned memory: write it in order, and do not read it. After the launch,
 * increment `replays`. */
uint8_t *silo_plan_ring_block(struct silo_plan_ring *ring, silo_error *error);

/* Fails with SILO_ERROR_FAULT if an update failed on the device. */
int silo_plan_ring_check(const struct silo_plan_ring *ring, silo_error *error);

/* silo_plan_ring_retire frees the ring's memory once every replay has read its block: at once, or
 * in a later call of either function. The ring is copied. */
void silo_plan_ring_retire(const struct silo_plan_ring *ring);
void silo_plan_rings_sweep(void);

/* In a child made by fork(): initializes the lock again, because a thread of the parent may have
 * held the lock. */
void silo_plan_rings_renew(void);

#endif
