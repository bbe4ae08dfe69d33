/* Recording launches for a plan: the arguments of each launch of a thread, in order. */
#ifndef SILO_RECORDER_H
#define SILO_RECORDER_H

#include "frame.h"
#include "launcher.h"

/* The recording of a thread, on which it looks at launches that hooks may see. */
struct silo_recorder {
    PyObject *launches; /* owned list, one tuple a launch */
    bool dry;           /* nothing runs */
    PyObject *known; /* owned list of an earlier recording: launches without a binding of their own
                        take its bindings; or NULL */
    PyObject *grid;  /* owned: a callable grid's result for the present launch */
    struct silo_recorder *outer; /* while bindings are looked for, nothing is recorded */
};

extern _Thread_local struct silo_recorder *silo_recorder;

/* Whether launches of this thread are recorded; then `silo_hooks_on` is set. */
SILO_INLINE bool silo_recorder_is_dry(void) {
    return silo_recorder != NULL && silo_recorder->dry;
}

/* Append a launch; `grid` is the object that its dimensions come from, as in silo_launch_guarded.
 * -1 with an exception set. */
int silo_recorder_add(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid, struct silo_binding *binding,
                      const struct silo_frame *frame, const int64_t dims[3], void *stream);

/* The binding of the launch that comes next, of a dry recording; a new reference, NULL with an
 * exception set if the earlier recording has another kernel there. */
struct silo_binding *silo_recorder_binding(struct silo_launcher *self);

/* A launch is made that is not recorded: `reason` (NULL: unknown) ends in the error that the
 * recording ends with. */
void silo_recorder_refuse(PyObject *kernel, PyObject *reason);

/* A callable grid's result. */
void silo_recorder_grid(PyObject *grid);

extern PyMethodDef silo_recorder_methods[];

#endif
