/* The ring of blocks through which replays of a plan's graph get their updates (plan_block.h), and
 * the kernel that reads them. */
#ifndef SILO_PLAN_RING_H
#define SILO_PLAN_RING_H

#include "device.h"
#include "driver.h"
#include "error.h"
#include "plan_block.h"

struct silo_plan_ring {
    struct silo_gpu_device *device;
    struct silo_plan_report *report; /* owned: pinned memory, with the blocks behind it */
    uint8_t *blocks;
    size_t stride;    /* bytes of a block */
    uint32_t slots;   /* a power of two */
    uint64_t address; /* owned: device memory, which begins with a struct silo_plan_device */
    uint64_t replays; /* that were launched */
    uint64_t wait_ns; /* the longest wait for a block */
    void *event;      /* owned; never recorded: querying it shows whether the context is lost */
};

/* The kernel that makes the updates, loaded on a device once and for ever; NULL with `error`. Its
 * only parameter is the ring's `address`. */
const struct silo_function *silo_plan_updater(struct silo_gpu_device *device, silo_error *error);

/* A ring of at least `slots` blocks of `stride` bytes each, a multiple of 16, with room on the
 * device for so many nodes and runs. Between `enter` and `leave`, as the next. -1 with `error`;
 * nothing to retire then. */
int silo_plan_ring_make(struct silo_plan_ring *ring, struct silo_gpu_device *device, size_t stride,
                        uint32_t slots, uint32_t count, uint32_t run_count, silo_error *error);

/* Before the first replay: the nodes and runs that updates mean. */
int silo_plan_ring_write(const struct silo_plan_ring *ring,
                         const struct silo_plan_device_node *nodes, uint32_t count,
                         const struct silo_plan_run *runs, uint32_t run_count, silo_error *error);

/* The block of the next replay, which no replay reads any more; NULL with `error`: an update failed
 * on the device, its context is lost, or none became free within `wait_ns`. The block is pinned
 * memory: write it in order, read nothing. After the launch, count it: `replays`. */
uint8_t *silo_plan_ring_block(struct silo_plan_ring *ring, silo_error *error);

/* SILO_ERROR_FAULT if an update failed on the device. */
int silo_plan_ring_check(const struct silo_plan_ring *ring, silo_error *error);

/* Gives the memory back once every replay has read its block: now, or in a later call of this or of
 * silo_plan_rings_sweep. The ring is copied. */
void silo_plan_ring_retire(const struct silo_plan_ring *ring);
void silo_plan_rings_sweep(void);

/* In a child made by fork: the lock that a thread of the parent may hold. */
void silo_plan_rings_renew(void);

#endif
