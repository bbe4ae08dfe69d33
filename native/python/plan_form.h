/* One form of a plan: the recorded launches and the conditions on arguments under which they serve
 * a call. It is made from Python's description of a recording, and replays read it. */
#ifndef SILO_PLAN_FORM_H
#define SILO_PLAN_FORM_H

#include "fork_lock.h"
#include "plan_fill.h"
#include "plan_scratch.h"
#include "python.h"

/* The kind of a plan's argument. */
enum silo_plan_kind {
    SILO_PLAN_ARRAY,
    SILO_PLAN_INT,
    SILO_PLAN_FLOAT,
    SILO_PLAN_OTHER, /* no launch receives it, and it must equal the object of the recording */
};

/* The condition on one argument of a call: a form serves the call only if every argument meets its
 * condition. Shapes are checked only if `held` is set. */
struct silo_plan_condition {
    uint8_t kind; /* enum silo_plan_kind */
    struct silo_dtype type;
    int32_t device_type, device_id;
    bool readonly;
    PyObject *other;  /* owned */
    int32_t rank;     /* rank of an array; -1 if any rank will do */
    bool held;        /* the array must have the extents and strides in `extents` */
    int64_t *extents; /* owned: the extents, followed by the strides */
};

struct silo_plan_served {
    struct silo_plan_form form;
    int32_t count;                          /* number of the plan's arguments */
    struct silo_plan_condition *conditions; /* owned array of `count` conditions */
    const struct silo_plan_backend *backend;
    void *state[2]; /* the backend's states: in [0] launches wait for each other by their effects,
                       in [1] each launch waits for the one before it */
    struct silo_gpu_device *device; /* the device of all nodes; NULL for a CPU */
    int32_t memory_type, device_index;
    uint32_t streams;                  /* number of streams that the nodes were recorded on */
    const struct silo_function *first; /* function of the first kernel */
    struct silo_plan_scratch scratch;  /* scratch memory of all nodes */
    PyObject *keeps; /* owned: bindings, launchers, and arrays that are not arguments */
    /* Owned: the value of a replay as a pair (argument's number, object), where number -1 selects
     * the object; a tuple of these pairs; or None. */
    PyObject *result;
    struct silo_fork_lock lock; /* held while a block is filled and launched */
    uint64_t replays, nanoseconds;
};

/* Makes a form of a plan with `count` arguments from the tuple that silo.kernels.plans builds.
 * Returns NULL with an exception set. */
struct silo_plan_served *silo_plan_form_new(PyObject *description, int32_t count);
void silo_plan_form_free(struct silo_plan_served *served);

#endif
