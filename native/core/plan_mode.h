/* Decides how the launches of a plan are made on a GPU. The decision depends only on facts that the
 * caller collects. */
#ifndef SILO_PLAN_MODE_H
#define SILO_PLAN_MODE_H

#include "base.h"

enum silo_plan_mode {
    SILO_PLAN_DEVICE = 1, /* a graph whose first node updates the other nodes on the device */
    SILO_PLAN_HOST = 2,   /* a graph whose changed nodes are updated from the host, by the driver */
    SILO_PLAN_SINGLY = 3, /* no graph: the kernels are launched one by one */
};

/* Options for benchmarks and tests; zeros are the defaults. */
struct silo_graph_plan_options {
    enum silo_plan_mode best; /* the best way that may be used */
    uint32_t slots;           /* number of blocks in the ring */
    uint32_t everything;      /* 1: each replay updates every node that runs */
    uint64_t wait_ns;         /* the longest wait for a free block */
};

struct silo_plan_facts {
    const char *driver; /* "cuda", "hip" */
    int version;        /* the driver's version in the driver's own encoding: 12040 for CUDA 12.4 */
    bool graphs;        /* the driver has functions for graphs, and Silo uses them */
    uint32_t kernels;   /* number of kernels in the plan */
    uint32_t cooperative; /* number of the plan's kernels that need a cooperative launch */
    uint32_t serialized;  /* number of the plan's kernels that use programmatic dependent launch */
    /* the first kernel whose parameters the driver reports at other places than the plan's, or
     * whose places it does not report; NULL if there is no such kernel */
    const char *places;
    const char *updater;      /* why the kernel that updates nodes cannot be used; NULL if it can */
    const char *host;         /* why a graph updated from the host cannot be made; NULL if it can */
    enum silo_plan_mode best; /* the best way that may be used; 0: any */
};

/* Returns the best way of launching that the facts allow, and writes to `reason` why no better way
 * is used. `size` is the size of `reason`; 512 bytes are enough. */
enum silo_plan_mode silo_plan_mode_choose(const struct silo_plan_facts *facts, char *reason,
                                          size_t size);

/* Returns "device", "host" or "singly". */
const char *silo_plan_mode_name(enum silo_plan_mode mode);

#endif
