/* One call as the choice among compiled variants sees it: the guard's facts about each argument,
 * and the device that it runs on (silo.launch.arguments, silo.core.device). */
#ifndef SILO_SEEN_H
#define SILO_SEEN_H

#include "manifest.h"

/* One argument. Everything is borrowed for the length of the call. */
struct silo_seen {
    uint8_t kind;     /* enum silo_value_kind: as in the words of the guard */
    uint8_t flags;    /* enum silo_value_flags: the facts, as in the words of the guard */
    uint16_t element; /* enum silo_element: of an array, a descriptor, an integer, float or bool;
                         0: an address of unknown elements, or none of these */
    int32_t rank;     /* of `shape`, and of `block` for a descriptor */
    const int64_t *shape;     /* NULL: not known, or not an array */
    const int64_t *strides;   /* in elements; NULL: not known */
    const int64_t *block;     /* of a descriptor */
    bool has_layout;          /* `layout` is known, and then `shape` need not be */
    uint64_t layout;          /* the word of silo_dynamic_word */
    struct silo_value number; /* of an integer, float, bool or constant: its value */
};

/* A compile option of the call. */
struct silo_seen_option {
    const char *name;
    struct silo_value value;
};

struct silo_seen_call {
    const struct silo_seen *arguments; /* one a parameter of the kernel, in order */
    uint32_t option_count;
    const struct silo_seen_option *options;
    const int64_t *grid; /* three dimensions; NULL: the call gives none */
    /* Said of a call that gives no grid and needs one; NULL: ", and the call gives none". */
    const char *without_grid;
};

/* A number that the device states of itself: "sm_count". */
struct silo_device_fact {
    const char *name;
    int64_t value;
};

/* Whether a device runs code of one kind for one target, by a rule of its own. */
struct silo_run_rule {
    const char *target, *blob_kind;
    bool runs;
    const char *reason;
};

/* The device of a call. */
struct silo_place {
    const char *target; /* the device's own, with its arch: "cuda:sm_90a" */
    const char *model;  /* for people; may be NULL */
    uint32_t fact_count;
    const struct silo_device_fact *facts;
    uint32_t rule_count; /* targets without a rule follow silo_runs_on */
    const struct silo_run_rule *rules;
};

#endif
