/* One form of a plan: made from Python's description of a recording, and read by replays. */
#ifndef SILO_PLAN_FORM_H
#define SILO_PLAN_FORM_H

#include "fork_lock.h"
#include "plan_fill.h"
#include "plan_scratch.h"
#include "python.h"

/* What an argument of a plan is. */
enum silo_plan_kind {
    SILO_PLAN_ARRAY,
    SILO_PLAN_INT,
    SILO_PLAN_FLOAT,
    SILO_PLAN_OTHER, /* passed to no launch: has to equal the object that was recorded */
};

/* What an argument has to be for a form to serve it; shapes are checked where they are held. */
struct silo_plan_wanted {
    uint8_t kind; /* enum silo_plan_kind */
    struct silo_dtype type;
    int32_t device_type, device_id;
    bool readonly;
    PyObject *other;  /* owned */
    int32_t rank;     /* of an array; -1: any */
    bool held;        /* extents and strides are these */
    int64_t *extents; /* owned: extents, then strides */
};

struct silo_plan_served {
    struct silo_plan_form form;
    int32_t count;                   /* arguments */
    struct silo_plan_wanted *wanted; /* owned, `count` of them */
    const struct silo_plan_backend *backend;
    void *state[2]; /* of the backend: ordered by effects; each launch after the one before it */
    struct silo_gpu_device *device; /* of all nodes; NULL: a CPU */
    int32_t memory_type, device_index;
    uint32_t streams;                  /* that its nodes were recorded on */
    const struct silo_function *first; /* of the first kernel */
    struct silo_plan_scratch scratch;  /* of its nodes */
    PyObject *keeps;                   /* owned: bindings, launchers, arrays that do not change */
    /* Owned: the result of a replay, as (argument, object) with the number of an argument, or -1
     * and an object; a tuple of such pairs; or None. */
    PyObject *result;
    struct silo_fork_lock lock; /* held from filling a block to the end of the launch */
    uint64_t replays, nanoseconds;
};

/* A form of a plan with `count` arguments (PyMem_Malloc), from the tuple that silo.kernels.plans
 * makes; NULL with an exception set. */
struct silo_plan_served *silo_plan_form_new(PyObject *description, int32_t count);
void silo_plan_form_free(struct silo_plan_served *served);

#endif
