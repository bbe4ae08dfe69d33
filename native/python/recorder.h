/* Recording launches for a plan: what each launch of a thread was given, in order; and stand-ins,
 * which a function that is recorded gets in place of arguments to show what it computes of them. */
#ifndef SILO_RECORDER_H
#define SILO_RECORDER_H

#include "frame.h"
#include "launcher.h"

/* The recording of a thread, on which it looks at launches that hooks may see. */
struct silo_recorder {
    PyObject *launches; /* owned list, one tuple a launch */
    bool dry;           /* nothing runs */
    PyObject *known; /* owned list of an earlier recording, whose bindings launches take that have
                        none of their own; or NULL */
    PyObject *grid;  /* owned: what a callable grid gave for the launch that is being made */
    struct silo_recorder *outer; /* while bindings are looked for, nothing is recorded */
};

extern _Thread_local struct silo_recorder *silo_recorder;

/* Whether launches of this thread are recorded; then `silo_hooks_on` is set. */
SILO_INLINE bool silo_recorder_is_dry(void) {
    return silo_recorder != NULL && silo_recorder->dry;
}

/* Append a launch; `grid` is where its dimensions come from as silo_launch_guarded has it. -1 with
 * an exception set. */
int silo_recorder_add(struct silo_launcher *self, const struct silo_inputs *inputs,
                      const struct silo_grid_source *grid, struct silo_binding *binding,
                      const struct silo_frame *frame, const int64_t dims[3], void *stream);

/* The binding of the launch that comes next, of a dry recording; a new reference, NULL with an
 * exception set where the earlier recording had another kernel there. */
struct silo_binding *silo_recorder_binding(struct silo_launcher *self);

/* A launch is made that is not recorded: `reason` (NULL: nobody says) ends in the error that the
 * recording ends with. */
void silo_recorder_refuse(PyObject *kernel, PyObject *reason);

/* What a callable grid gave. */
void silo_recorder_grid(PyObject *grid);

/* The object that a stand-in stands for (borrowed), NULL: it is none. */
PyObject *silo_stood_for(PyObject *object);

int silo_recorder_init(PyObject *module);
extern PyMethodDef silo_recorder_methods[];

#endif
