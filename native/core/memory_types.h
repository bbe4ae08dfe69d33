/* The kinds of memory by DLPack device type, and the GPU drivers that allocate them. */
#ifndef SILO_MEMORY_TYPES_H
#define SILO_MEMORY_TYPES_H

#include "gpu.h"

struct silo_memory_type {
    const char *name;     /* name for messages */
    struct silo_gpu *gpu; /* the driver that allocates it; NULL: none of `silo_gpus` */
    bool shared; /* all GPUs of `gpu` can use the memory, whichever device an array reports */
};

/* Returns the entry of a DLPack device type. Unknown types have an entry, too. */
const struct silo_memory_type *silo_memory_type(int32_t type);

/* All GPU drivers, in the order in which they are tried; ends with NULL. */
extern struct silo_gpu *const silo_gpus[];

/* Returns the driver to use for memory whose driver is unknown: the first open driver of silo_gpus,
 * or the first driver if none is open. */
struct silo_gpu *silo_gpu_usual(void);

/* Returns the open driver whose device, pinned or managed memory has this type, or NULL. */
struct silo_gpu *silo_gpu_of_memory(int32_t type);

#endif
