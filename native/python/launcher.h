/* The objects a call goes through. */
#ifndef SILO_LAUNCHER_H
#define SILO_LAUNCHER_H

#include "held_extents.h"
#include "kernel.h"
#include "known_bindings.h"
#include "plan.h"

/* Call sites remembered; further ones are worked out at every call. */
#define SILO_MAX_FORMS 32

/* Where the grid comes from. */
struct silo_grid_source {
    PyObject *callable; /* borrowed from the holder of this; NULL: `dims` hold */
    int64_t dims[3];
};

/* How the calls of a launcher find their binding. */
enum silo_route {
    SILO_ROUTE_GUARDED, /* through the guard */
    SILO_ROUTE_HELD,    /* through the guard, which holds extents besides; or, where there is one
                           binding, to that, with the extents that it is passed */
    SILO_ROUTE_WATCHED, /* through the guard, after a look at what the kernel's code was made of */
    SILO_ROUTE_TRITON,  /* through the guard, by Triton's rules: triton_kernel.c makes the calls */
    SILO_ROUTE_FIXED,   /* there is one, and no guard */
};

/* What every call touches comes first, in two cache lines. */
struct silo_launcher {
    PyObject_HEAD vectorcallfunc call;
    struct silo_known known;
    uint8_t route; /* enum silo_route */
    struct silo_plan plan;
    struct silo_bound *spare; /* owned memory of a Bound without references but to a plain grid, for
                                 the next k[grid] */
    struct silo_binding *fixed; /* owned; NULL but for SILO_ROUTE_FIXED: every call goes there */
    bool release_gil;
    silo_lock lock;        /* held to add a form, and to take or leave the spare */
    uint32_t form_count;   /* read without the lock: forms before it are whole */
    PyObject *grid_object; /* owned; NULL: no grid of its own */
    struct silo_grid_source grid;
    PyObject *constants; /* owned dict: one object for equal constexpr tuples */
    PyObject *on_miss;   /* owned callable */
    PyObject *on_unread; /* owned; NULL: none. Asked where an argument could not be read */
    uint64_t misses;
    struct silo_form *forms[SILO_MAX_FORMS]; /* owned; never freed before the launcher */
    struct silo_extents extents;             /* empty but for SILO_ROUTE_HELD */
    PyObject *watched;   /* owned tuple (watch.h); NULL where nothing ever was watched */
    PyObject *on_change; /* owned callable: makes the code anew, and watches what it is made of */
};

struct silo_bound {
    PyObject_HEAD vectorcallfunc call;
    struct silo_launcher *launcher; /* owned */
    PyObject *grid_object;          /* owned */
    struct silo_grid_source grid;
    bool tracked; /* by the collector; see bound.c */
};

/* The arguments of one call, in the order of the parameters. */
struct silo_inputs {
    PyObject *const *arguments; /* one a parameter; NULL: absent */
    PyObject *stream;           /* borrowed or NULL */
    PyObject *grid;
    uint32_t options;
    uint8_t option[SILO_MAX_OPTIONS];
    PyObject *option_value[SILO_MAX_OPTIONS]; /* borrowed */
    struct silo_triton_call *triton;          /* set for SILO_ROUTE_TRITON alone */
};

enum silo_mode {
    SILO_MODE_LAUNCH,
    SILO_MODE_RESOLVE, /* find or make the binding, launch nothing */
    SILO_MODE_INSPECT, /* only say what the call looks like */
};

/* The five compiled forms of the core (launch.c). `grid` may be NULL. `result` is None, the
 * binding or the description, a new reference; NULL with an exception set. */
PyObject *silo_launch_guarded(struct silo_launcher *self, const struct silo_inputs *inputs,
                              const struct silo_grid_source *grid);
/* As silo_launch_guarded, once on_change was called if something that is watched has changed. */
PyObject *silo_launch_watched(struct silo_launcher *self, const struct silo_inputs *inputs,
                              const struct silo_grid_source *grid);
PyObject *silo_launch_held(struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_grid_source *grid);
PyObject *silo_launch_fixed(struct silo_launcher *self, const struct silo_inputs *inputs,
                            const struct silo_grid_source *grid);
/* Gives Triton's compiled kernel, or whatever Triton's own way gives. */
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

/* `launcher[grid]` (bound.c). */
PyObject *silo_bound_new(struct silo_launcher *launcher, PyObject *grid);

/* Free the memory a launcher keeps for its next Bound. */
void silo_bound_drop_spare(struct silo_launcher *launcher);

extern PyTypeObject *silo_launcher_type;

int silo_launcher_init(PyObject *module); /* Launcher (launcher_type.c) */
int silo_bound_init(PyObject *module);    /* Bound (bound.c) */

#endif
