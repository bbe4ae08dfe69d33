/* An array argument as a launch uses it: address, device, element type, and whether it is
 * read-only. */
#ifndef SILO_VIEW_H
#define SILO_VIEW_H

#include "dtypes.h"
#include "python.h"

struct silo_view {
    uint64_t address; /* 0 if the array is empty */
    int32_t device_type;
    int32_t device_id;
    struct silo_dtype dtype;
    bool readonly;
};

#endif
