/* Kinds of memory by DLPack device type: one table, an entry each, and the drivers behind them. */
#ifndef SILO_MEMORY_TYPES_H
#define SILO_MEMORY_TYPES_H

#include "gpu.h"

struct silo_memory_type {
    const char *name;     /* in words, for messages */
    struct silo_gpu *gpu; /* the driver that makes such memory; NULL: none of `silo_gpus` */
    bool shared;          /* a GPU reads it, whatever device it reports */
};

/* The entry of a DLPack device type; unknown types have an entry with a name, too. */
const struct silo_memory_type *silo_memory_type(int32_t type);

/* Every GPU driver, in the order in which they are tried; ends with NULL. */
extern struct silo_gpu *const silo_gpus[];

/* The driver of memory without a known driver: the first that is open, else the first. */
struct silo_gpu *silo_gpu_usual(void);

/* The open driver whose memory (device, pinned or managed) has this type, or NULL without an
 * exception. */
struct silo_gpu *silo_gpu_of_memory(int32_t type);

#endif
