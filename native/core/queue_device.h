/* The device of a bundle's calls: its facts, and the driver that loads code on it. */
#ifndef SILO_QUEUE_DEVICE_H
#define SILO_QUEUE_DEVICE_H

#include "argument_facts.h"
#include "bundle.h"
#include "device.h"

#define SILO_MOST_FACTS 32

/* A device that a bundle was used on. Made at its first use; lives as long as the bundle. */
struct silo_used_device {
    struct silo_used_device *next; /* owned: the list of the bundle */
    int32_t device, index;         /* kind and number of the device, as in silo_queue */
    const struct silo_driver *driver;
    struct silo_gpu *gpu; /* NULL for the CPU */
    struct silo_call_device info;
    char target[160], model[224];
    struct silo_device_fact facts[SILO_MOST_FACTS];
};

/* Returns the device of a queue. Opens a GPU's driver at its first use, without making a context.
 * On failure returns NULL with SILO_ERROR_USAGE (unknown kind of device), _NO_DRIVER, _NO_DEVICE,
 * _FORKED. The caller holds the bundle's lock. */
const struct silo_used_device *silo_queue_device(struct silo_bundle *bundle, const char *kernel,
                                                 const silo_queue *queue, silo_error *error);

void silo_queue_free(struct silo_bundle *bundle);

#endif
