/* The memory that the first node of a plan's graph reads: which nodes of the graph get a new grid,
 * new parameters, or are enabled or disabled before they run. Written by graph_plan.c, and read on
 * the device by native/gpu/plan_update.cu, so that this file is both C and CUDA C++.
 *
 * A ring of blocks is in pinned host memory. Replay number r (from 0) reads block r % slots: a
 * struct silo_plan_head, `count` structs silo_plan_update, then the bytes of parameters. A node
 * without an update keeps its state from the replay before. */
#ifndef SILO_PLAN_BLOCK_H
#define SILO_PLAN_BLOCK_H

#include <stdint.h>

#define SILO_PLAN_KERNEL "silo_plan_update" /* takes one parameter: struct silo_plan_device * */
/* Threads of the kernel's single block; each updates one node at a time. */
#define SILO_PLAN_THREADS 512

struct silo_plan_head {
    uint64_t replay; /* number of the replay; the kernel refuses a block with another number */
    uint32_t count;  /* number of updates */
    /* 1: a trial, in which no other node runs and failed updates are only reported */
    uint32_t trial;
    uint32_t bytes; /* bytes of the block that this replay uses, including this struct */
    uint32_t padding[3];
};

/* Bits of silo_plan_update.fields: the parts of a node to change. */
#define SILO_PLAN_GRID 1u
#define SILO_PLAN_ENABLED 2u
#define SILO_PLAN_PARAMETERS 4u

struct silo_plan_update {
    uint32_t node;    /* number of the node: index into `nodes` in device memory */
    uint32_t fields;  /* SILO_PLAN_GRID, _ENABLED, _PARAMETERS */
    uint32_t grid[3]; /* in blocks, each at least 1 */
    uint32_t enabled; /* 0 or 1 */
    uint32_t from;    /* offset of the parameter buffer in the block, a multiple of 16 */
    uint32_t padding;
};

/* A range of a parameter buffer: adjacent parameters that one update sets together. */
struct silo_plan_run {
    uint32_t offset, bytes;
};

struct silo_plan_device_node {
    uint64_t handle; /* CUgraphDeviceNode */
    uint32_t first_run, run_count;
};

/* The updating kernel's state, in device memory. The host writes it once and never changes it. */
struct silo_plan_device {
    uint64_t replay;     /* number of the next replay */
    uint32_t slots;      /* number of blocks in the ring: a power of two */
    uint32_t node_count; /* length of `nodes` */
    uint32_t run_count;  /* length of `runs` */
    uint32_t padding;
    /* address of the first block; distance between blocks in bytes, a multiple of 16 */
    uint64_t ring, stride;
    uint64_t report;      /* address of a struct silo_plan_report */
    uint64_t nodes, runs; /* addresses of arrays of silo_plan_device_node and silo_plan_run */
};

/* Codes of a report that are not error codes of the CUDA runtime. */
#define SILO_PLAN_OTHER_REPLAY 0x10000u /* the block in the ring belongs to another replay */

/* The kernel's report, in pinned host memory that the device writes. */
struct silo_plan_report {
    /* number of replays whose updates are done, so that their blocks may be reused */
    uint64_t done;
    uint32_t code; /* cudaError_t of the first update that failed; 0: none */
    uint32_t node; /* number of the node whose update failed */
};

#endif
