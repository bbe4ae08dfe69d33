#include "plan_mode.h"

#include <stdio.h>

/* The first version of the CUDA driver whose kernels can update nodes of a graph. */
enum { UPDATABLE_DRIVER = 12040 };

/* Returns true, with the cause in `reason`, if nodes cannot be updated on the device. */
static bool refuse_device(const struct silo_plan_facts *facts, char *reason, size_t size) {
    if (facts->best > SILO_PLAN_DEVICE)
        snprintf(reason, size, "another way was asked for");
    else if (facts->version < UPDATABLE_DRIVER)
        snprintf(reason, size,
                 "the driver is for CUDA %d.%d, and kernels update nodes from 12.4 on",
                 facts->version / 1000, facts->version % 1000 / 10);
    else if (facts->cooperative > 0)
        snprintf(reason, size,
                 "%u of %u kernels are cooperative: only the host checks that all of their blocks "
                 "fit on the device",
                 facts->cooperative, facts->kernels);
    else if (facts->places != NULL)
        snprintf(reason, size, "the driver does not confirm where the parameters of %s lie",
                 facts->places);
    else if (facts->updater != NULL)
        snprintf(reason, size, "%s", facts->updater);
    else
        return false;
    return true;
}

/* Returns true, with the cause in `reason`, if no graph can be made. */
static bool refuse_graph(const struct silo_plan_facts *facts, char *reason, size_t size) {
    if (facts->best > SILO_PLAN_HOST)
        snprintf(reason, size, "another way was asked for");
    else if (!facts->graphs)
        snprintf(reason, size, "Silo makes no graphs with this %s driver", facts->driver);
    else if (facts->host != NULL)
        snprintf(reason, size, "%s", facts->host);
    else
        return false;
    return true;
}

enum silo_plan_mode silo_plan_mode_choose(const struct silo_plan_facts *facts, char *reason,
                                          size_t size) {
    char refusal[384], dropped[160] = "";
    if (refuse_graph(facts, refusal, sizeof refusal)) {
        snprintf(reason, size, "launched one by one: %s", refusal);
        return SILO_PLAN_SINGLY;
    }
    if (facts->serialized > 0)
        snprintf(dropped, sizeof dropped,
                 "; %u of %u kernels run without programmatic dependent launch, since an edge of "
                 "the graph waits for the whole kernel",
                 facts->serialized, facts->kernels);
    if (refuse_device(facts, refusal, sizeof refusal)) {
        snprintf(reason, size, "one graph, its nodes updated from the host: %s%s", refusal,
                 dropped);
        return SILO_PLAN_HOST;
    }
    snprintf(reason, size, "one graph, its nodes updated on the device%s", dropped);
    return SILO_PLAN_DEVICE;
}

const char *silo_plan_mode_name(enum silo_plan_mode mode) {
    return mode == SILO_PLAN_DEVICE ? "device" : mode == SILO_PLAN_HOST ? "host" : "singly";
}
