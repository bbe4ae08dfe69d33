/* The facts about a call from which a variant is chosen: the facts about each argument that the
 * guard compares, and the device (in Python: silo.launch.arguments, silo.core.device). */
#ifndef SILO_ARGUMENT_FACTS_H
#define SILO_ARGUMENT_FACTS_H

#include "manifest.h"

/* The facts about an argument. Pointers are borrowed for the length of the call. */
struct silo_argument_facts {
    uint8_t kind;     /* enum silo_value_kind, as in the argument's guard word */
    uint8_t flags;    /* enum silo_value_flags, as in the argument's guard word */
    uint16_t element; /* enum silo_element of an array, descriptor, integer, float or bool; 0 if the
                         type is unknown or the argument is of another kind */
    int32_t rank;     /* number of axes of `shape` or of a descriptor's `block` */
    const int64_t *shape;     /* NULL if unknown, or not an array */
    const int64_t *strides;   /* in elements; NULL if unknown */
    const int64_t *block;     /* block shape of a descriptor */
    bool has_layout;          /* `layout` is set; `shape` may then be NULL */
    uint64_t layout;          /* the argument's layout, encoded by silo_dynamic_word */
    struct silo_value number; /* value of an integer, float, bool or constant */
};

/* A compile option that the call sets. */
struct silo_option_value {
    const char *name;
    struct silo_value value;
};

struct silo_call_arguments {
    const struct silo_argument_facts *arguments; /* an entry for each parameter of the kernel */
    uint32_t option_count;
    const struct silo_option_value *options;
    const int64_t *grid; /* three dimensions; NULL if the call gives no grid */
    /* The end of the error message about a call that needs a grid and gives none. NULL means the
     * text ", and the call gives none". */
    const char *without_grid;
};

/* A number that the device reports: "sm_count". */
struct silo_device_fact {
    const char *name;
    int64_t value;
};

/* A decision of the device's Python class (Device.runs): whether the device runs code of kind
 * `blob_kind` for `target`. */
struct silo_run_rule {
    const char *target, *blob_kind;
    bool runs;
    const char *reason;
};

/* The device of a call. */
struct silo_call_device {
    const char *target; /* target of the device, with its architecture: "cuda:sm_90a" */
    const char *model;  /* for messages; may be NULL */
    uint32_t fact_count;
    const struct silo_device_fact *facts;
    uint32_t rule_count; /* number of `rules`; silo_runs_on decides about targets without a rule */
    const struct silo_run_rule *rules;
};

#endif
