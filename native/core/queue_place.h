/* The place of a bundle's calls: a device, its reported facts, and how code is loaded there. */
#ifndef SILO_QUEUE_PLACE_H
#define SILO_QUEUE_PLACE_H

#include "bundle.h"
#include "device.h"
#include "seen.h"

#define SILO_MOST_FACTS 32

/* Made when a device is first used; lives as long as its bundle. */
struct silo_located {
    struct silo_located *next; /* owned: the list of the bundle */
    int32_t device, index;     /* of the queue */
    const struct silo_driver *driver;
    struct silo_gpu *gpu; /* NULL: a CPU */
    struct silo_place place;
    char target[160], model[224];
    struct silo_device_fact facts[SILO_MOST_FACTS];
};

/* The place of a queue; opens a GPU's driver at the first use, and makes no context. NULL with
 * SILO_ERROR_USAGE (no such kind of device), _NO_DRIVER, _NO_DEVICE, _FORKED. With the bundle's
 * lock. */
const struct silo_located *silo_queue_locate(struct silo_bundle *bundle, const char *kernel,
                                             const silo_queue *queue, silo_error *error);

void silo_queue_free(struct silo_bundle *bundle);

#endif
