/* Records launches for a plan: the arguments of all launches of a thread, in order. */
#ifndef SILO_RECORDER_H
#define SILO_RECORDER_H

#include "frame.h"
#include "launcher.h"

/* The recording of a thread. */
struct silo_recorder {
    PyObject *launches; /* owned list with a tuple for each launch */
    bool dry;           /* launches are recorded, but not made */
    /* Owned list of the bindings of an earlier recording, or NULL. In a dry recording, a launch
     * without a binding uses the binding at the same position of this list. */
    PyObject *bindings;
    PyObject *grid;              /* owned: the result of the present launch's callable grid */
    struct silo_recorder *outer; /* the recording that this one interrupts */
};

extern _Thread_local struct silo_recorder *silo_recorder;

/* Returns whether this thread records launches without making them. While it records,
 * `silo_hooks_on` is set. */
SILO_INLINE bool silo_recorder_is_dry(void) {
    return silo_recorder != NULL && silo_recorder->dry;
}

/* Appends a launch; `grid` is as in silo_launch_guarded. Returns -1 with an exception set. */
int silo_recorder_add(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid, struct silo_binding *binding,
                      const struct silo_frame *frame, const int64_t dims[3], void *stream);

/* Returns the binding for the next launch of a dry recording, taken from the earlier recording; a
 * new reference. Returns NULL with an exception set if the earlier recording has another kernel at
 * this position. */
struct silo_binding *silo_recorder_binding(struct silo_launcher *self);

/* Notes a launch that cannot be recorded. The recording then ends with an error whose text includes
 * `reason`, if it is not NULL. */
void silo_recorder_refuse(PyObject *kernel, PyObject *reason);

/* Stores the result of the next launch's callable grid for the recording. */
void silo_recorder_grid(PyObject *grid);

extern PyMethodDef silo_recorder_methods[];

#endif
