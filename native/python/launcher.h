/* A launcher, and the arguments of one of its calls. */
#ifndef SILO_LAUNCHER_H
#define SILO_LAUNCHER_H

#include "binding_table.h"
#include "held_extents.h"
#include "kernel.h"
#include "plan.h"

/* The most call-site forms that a launcher keeps; calls of other forms are analysed each time. */
#define SILO_MAX_FORMS 32

/* The source of a call's grid. */
struct silo_grid_source {
    PyObject *callable; /* borrowed from the owner of this struct; NULL if `dims` is the grid */
    /* Borrowed too: the object that `dims` was read from, or NULL. */
    PyObject *object;
    int64_t dims[3];
};

/* How a launcher finds the binding of a call. */
enum silo_route {
    SILO_ROUTE_GUARDED, /* looks the binding up in the guard */
    SILO_ROUTE_HELD,    /* the key includes the arrays' extents; if the code receives extents as
                           parameters, the single binding is used without a key */
    SILO_ROUTE_WATCHED, /* looks the binding up after a check of the values that the kernel's code
                           was compiled with */
    SILO_ROUTE_TRITON,  /* looks the binding up by Triton's rules; triton_kernel.c makes these calls
                         */
    SILO_ROUTE_FIXED,   /* has only one binding and no guard */
};

/* The members that every call uses come first, in two cache lines. */
struct silo_launcher {
    PyObject_HEAD vectorcallfunc call;
    struct silo_binding_table bindings;
    uint8_t route; /* enum silo_route */
    struct silo_plan plan;
    struct silo_bound *spare; /* owned memory of a freed Bound for the next k[grid]; it refers to
                                 nothing but a plain grid */
    /* Owned: the binding of all calls; NULL except for SILO_ROUTE_FIXED. */
    struct silo_binding *fixed;
    bool release_gil;
    silo_lock lock;        /* held to add a form, and to take or store the spare */
    uint32_t form_count;   /* read without the lock: all forms below this number are complete */
    PyObject *grid_object; /* owned; NULL if the launcher itself lacks a grid */
    struct silo_grid_source grid;
    PyObject *constants; /* owned dict: maps a constexpr value's key to the object that represents
                            equal values */
    PyObject *on_miss;   /* owned callable */
    PyObject *on_unread; /* owned; called if an argument could not be read; may be NULL */
    uint64_t misses;
    struct silo_form *forms[SILO_MAX_FORMS]; /* owned; freed only with the launcher */
    struct silo_extents extents;             /* empty except for SILO_ROUTE_HELD */
    PyObject *watched; /* owned tuple (watch.h); NULL if nothing was ever watched */
    /* Owned callable: compiles the code again and returns the names to watch. */
    PyObject *on_change;
};

/* The arguments of one call, in the order of the parameters. */
struct silo_inputs {
    PyObject *const *arguments; /* one for each parameter; NULL if absent */
    PyObject *stream;           /* borrowed or NULL */
    PyObject *grid;
    uint32_t options;
    uint8_t option[SILO_MAX_OPTIONS];
    PyObject *option_value[SILO_MAX_OPTIONS]; /* borrowed */
    struct silo_triton_call *triton;          /* set only for SILO_ROUTE_TRITON */
};

#endif
