/* What a launch needs to know about an array. */
#ifndef SILO_VIEW_H
#define SILO_VIEW_H

#include "dtypes.h"
#include "python.h"

struct silo_view {
    uint64_t address; /* 0 if it is empty */
    int32_t device_type;
    int32_t device_id;
    struct silo_dtype dtype;
    bool readonly;
};

#endif
