/* Which way the launches of a plan go on a GPU. A pure decision over gathered facts. */
#ifndef SILO_PLAN_WAY_H
#define SILO_PLAN_WAY_H

#include "base.h"

enum silo_plan_way {
    SILO_PLAN_DEVICE = 1, /* one graph, whose first node updates the others */
    SILO_PLAN_HOST = 2,   /* one graph; the driver updates each changed node from the host */
    SILO_PLAN_SINGLY = 3, /* no graph: launched one by one */
};

/* For benchmarks and tests; zeros are the usual. */
struct silo_graph_plan_options {
    enum silo_plan_way wanted; /* at most this way */
    uint32_t slots;            /* blocks of the ring */
    uint32_t everything;       /* 1: each replay updates every node that runs */
    uint64_t wait_ns;          /* the longest wait for a block */
};

struct silo_plan_facts {
    const char *driver;   /* "cuda", "hip" */
    int version;          /* the driver's: 12040 */
    bool graphs;          /* Silo has the functions of graphs for this driver, and it has them */
    uint32_t kernels;     /* nodes of the plan */
    uint32_t cooperative; /* of them: kernels whose blocks all have to run at once */
    uint32_t serialized;  /* of them: kernels launched by programmatic dependent launch */
    const char *places;   /* the first kernel whose parameters do not lie where the driver has them,
                             or it does not tell where; NULL: none */
    const char *updater;  /* why the kernel that updates nodes cannot be used; NULL: it can */
    const char *host;     /* why a graph without it cannot be made; NULL: it can */
    enum silo_plan_way wanted; /* at most this one is taken; 0: the best */
};

/* The way, and into `reason` (`size` bytes; 512 hold any) why it is not a better one. */
enum silo_plan_way silo_plan_way_choose(const struct silo_plan_facts *facts, char *reason,
                                        size_t size);

/* "device", "host", "singly" */
const char *silo_plan_way_name(enum silo_plan_way way);

#endif
