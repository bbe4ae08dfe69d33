/* The memory that the first node of a plan's graph reads: which nodes of the graph take another
 * grid, other parameters, or are switched on or off before they run. Written by graph_plan.c, read
 * on the device by native/gpu/plan_update.cu, so this file is both C and CUDA C++.
 *
 * A ring of blocks lies in pinned host memory. Replay number r (from 0) reads block r % slots: a
 * struct silo_plan_head, `count` structs silo_plan_update, then the parameters' bytes. A node that
 * no update names keeps the state that the last update gave it. */
#ifndef SILO_PLAN_BLOCK_H
#define SILO_PLAN_BLOCK_H

#include <stdint.h>

#define SILO_PLAN_KERNEL "silo_plan_update" /* its only parameter: struct silo_plan_device * */
#define SILO_PLAN_THREADS 512               /* of its only block; each updates one node at a time */

struct silo_plan_head {
    uint64_t replay; /* its number: a block that holds another one is not this replay's */
    uint32_t count;  /* updates */
    uint32_t trial;  /* 1: a failed update is only reported, because no other node runs */
    uint32_t bytes;  /* of the block that this replay uses, with this head */
    uint32_t padding[3];
};

/* The fields that an update sets. */
#define SILO_PLAN_GRID 1u
#define SILO_PLAN_ENABLED 2u
#define SILO_PLAN_PARAMETERS 4u

struct silo_plan_update {
    uint32_t node;    /* its number: an index into `nodes` of the device's memory */
    uint32_t fields;  /* SILO_PLAN_GRID, _ENABLED, _PARAMETERS */
    uint32_t grid[3]; /* in blocks, each at least 1 */
    uint32_t enabled; /* 0 or 1 */
    uint32_t from;    /* bytes from the block's begin to the parameter buffer, a multiple of 16 */
    uint32_t padding;
};

/* Bytes of a parameter buffer that lie beside each other without a gap. */
struct silo_plan_run {
    uint32_t offset, bytes;
};

struct silo_plan_device_node {
    uint64_t handle; /* CUgraphDeviceNode */
    uint32_t first_run, run_count;
};

/* In device memory; the kernel's own and never changed from the host after it was written. */
struct silo_plan_device {
    uint64_t replay;     /* the number of the next replay */
    uint32_t slots;      /* blocks of the ring: a power of two */
    uint32_t node_count; /* of `nodes` */
    uint32_t run_count;  /* of `runs` */
    uint32_t padding;
    uint64_t ring, stride; /* address of the first block; bytes from one to the next: of 16 */
    uint64_t report;       /* address of a struct silo_plan_report */
    uint64_t nodes, runs;  /* addresses of the arrays of the two structs above */
};

/* Codes of a report that are not the CUDA runtime's. */
#define SILO_PLAN_OTHER_REPLAY 0x10000u /* the block in the ring is another replay's */

/* In pinned host memory, written by the device. */
struct silo_plan_report {
    uint64_t done; /* replays whose updates are made: their blocks are free again */
    uint32_t code; /* the first update that failed: cudaError_t; 0: none has */
    uint32_t node; /* of that update */
};

#endif
