/* A launcher, and the arguments of one call of it. */
#ifndef SILO_LAUNCHER_H
#define SILO_LAUNCHER_H

#include "held_extents.h"
#include "kernel.h"
#include "known_bindings.h"
#include "plan.h"

/* Call sites remembered; further ones are worked out at every call. */
#define SILO_MAX_FORMS 32

/* The source of the grid. */
struct silo_grid_source {
    PyObject *callable; /* borrowed from the holder of this; NULL: `dims` hold */
    PyObject
        *object; /* likewise: the object that `dims` were read from; NULL: they were made here */
    int64_t dims[3];
};

/* How the calls of a launcher find their binding. */
enum silo_route {
    SILO_ROUTE_GUARDED, /* through the guard */
    SILO_ROUTE_HELD,    /* through the guard, which holds extents besides; or to the single binding,
                           with the extents that it is passed */
    SILO_ROUTE_WATCHED, /* through the guard, after a check of the values that the kernel's code was
                           made from */
    SILO_ROUTE_TRITON,  /* through the guard, by Triton's rules: triton_kernel.c makes the calls */
    SILO_ROUTE_FIXED,   /* there is one, and no guard */
};

/* What every call touches comes first, in two cache lines. */
struct silo_launcher {
    PyObject_HEAD vectorcallfunc call;
    struct silo_known known;
    uint8_t route; /* enum silo_route */
    struct silo_plan plan;
    struct silo_bound
        *spare; /* owned memory of a Bound that refers only to a plain grid, for the next k[grid] */
    struct silo_binding *fixed; /* owned; NULL but for SILO_ROUTE_FIXED: every call goes there */
    bool release_gil;
    silo_lock lock;        /* held to add a form, and to take or leave the spare */
    uint32_t form_count;   /* read without the lock: forms before it are whole */
    PyObject *grid_object; /* owned; NULL: no grid of its own */
    struct silo_grid_source grid;
    PyObject *constants; /* owned dict: one object for equal constexpr tuples */
    PyObject *on_miss;   /* owned callable */
    PyObject *on_unread; /* owned; NULL: none. Called if an argument could not be read */
    uint64_t misses;
    struct silo_form *forms[SILO_MAX_FORMS]; /* owned; never freed before the launcher */
    struct silo_extents extents;             /* empty but for SILO_ROUTE_HELD */
    PyObject *watched;   /* owned tuple (watch.h); NULL where nothing ever was watched */
    PyObject *on_change; /* owned callable: makes the code anew, and returns the names to watch */
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

#endif
