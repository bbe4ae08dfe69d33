/* Launches: functions that carry a call from its arguments to the driver. */
#ifndef SILO_LAUNCH_H
#define SILO_LAUNCH_H

#include "launcher.h"

enum silo_mode {
    SILO_MODE_LAUNCH,
    SILO_MODE_RESOLVE, /* find or make the binding, but launch nothing */
    SILO_MODE_INSPECT, /* only describe the call */
};

/* The launch functions, one for each enum silo_route; `grid` may be NULL. They return the value of
 * the call, usually None. silo_launch_examine returns the binding or the description of the call
 * instead. Each result is a new reference, or NULL with an exception set. */
PyObject *silo_launch_guarded(struct silo_launcher *self, const struct silo_inputs *inputs,
                              const struct silo_grid_source *grid);
/* Like silo_launch_guarded, but first calls on_change if a watched value (watch.h) has changed. */
PyObject *silo_launch_watched(struct silo_launcher *self, const struct silo_inputs *inputs,
                              const struct silo_grid_source *grid);
PyObject *silo_launch_held(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid);
PyObject *silo_launch_fixed(struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_grid_source *grid);
/* Returns Triton's compiled kernel, or whatever Triton's own launch returns. */
PyObject *silo_launch_triton(struct silo_launcher *self, const struct silo_inputs *inputs,
                             const struct silo_grid_source *grid);
PyObject *silo_launch_examine(struct silo_launcher *self, const struct silo_inputs *inputs,
                              enum silo_mode mode);

SILO_INLINE PyObject *silo_launcher_call(struct silo_launcher *self,
                                         const struct silo_inputs *inputs,
                                         const struct silo_grid_source *grid) {
    if (SILO_LIKELY(self->route == SILO_ROUTE_GUARDED))
        return silo_launch_guarded(self, inputs, grid);
    if (self->route == SILO_ROUTE_WATCHED)
        return silo_launch_watched(self, inputs, grid);
    if (SILO_UNLIKELY(self->route == SILO_ROUTE_TRITON)) {
        PyErr_SetString(PyExc_TypeError,
                        "a Triton program's kernel is called through its function");
        return NULL;
    }
    return self->route == SILO_ROUTE_FIXED ? silo_launch_fixed(self, inputs, grid)
                                           : silo_launch_held(self, inputs, grid);
}

#endif
