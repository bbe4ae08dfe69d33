/* Fills the block of a plan (plan_backend.h) from the arguments of a replay.
 *
 * A form is the result of recording a plan once: its nodes, the values that are computed from the
 * plan's arguments, the conditions on these values, and the places in the block to which they are
 * written. It does not change once it is made. */
#ifndef SILO_PLAN_FILL_H
#define SILO_PLAN_FILL_H

#include "argument_word.h"
#include "grid.h"
#include "packing.h"
#include "plan_backend.h"
#include "tensor_map.h"

/* Limits: arguments of a plan; different values, pieces of memory and nodes of one recording
 * (form). */
#define SILO_PLAN_ARGUMENTS 64
#define SILO_PLAN_VALUES 1024
#define SILO_PLAN_MEMORIES 64
#define SILO_PLAN_NODES 16384

/* The arguments of a replay. */
struct silo_plan_arguments {
    silo_bindings bindings; /* a slot for each argument, with integers and the shapes of arrays */
    const uint64_t *words;  /* for each argument: an integer, the bits of a double, or an address */
    /* for arrays: addresses of the first byte and of the byte after the last */
    const uint64_t *low, *high;
};

enum silo_plan_value_kind {
    SILO_PLAN_GIVEN,    /* an argument's word, unchanged */
    SILO_PLAN_MOVED,    /* an array's address plus a constant */
    SILO_PLAN_COMPUTED, /* the result of a program over the arguments */
};

struct silo_plan_value {
    uint8_t kind; /* enum silo_plan_value_kind */
    int16_t argument;
    int32_t count; /* instructions of the program */
    int64_t offset;
    silo_instruction *program; /* owned */
};

/* A condition on a value. If the condition does not hold, the recorded launches cannot serve the
 * replay. */
struct silo_plan_check {
    uint32_t value;
    bool fixed; /* true: the value itself must equal `word`; false: the guard word of the value as a
                   kernel's argument must equal `word` */
    bool keyed; /* the second guard word of the value (silo_key_word) must also equal `key` */
    struct silo_parameter parameter;
    uint64_t word, key;
};

/* A value that is copied into the block as a parameter. */
struct silo_plan_move {
    uint32_t value;
    uint32_t at;   /* offset in the block */
    uint8_t bytes; /* size of the parameter */
    uint8_t pack;  /* enum silo_pack */
};

/* A parameter that is made from an array or a tensor descriptor: a tensor map or a struct. */
struct silo_plan_derived {
    uint32_t at;        /* offset in the block */
    const char *kernel; /* borrowed, for messages; so is `name` */
    const char *name;
    const struct silo_map_form *map;     /* borrowed from the loaded code; NULL for a struct */
    const struct silo_struct_form *form; /* borrowed from the loaded code; NULL for a tensor map */
    int32_t argument;                    /* for an array: number of the plan's argument; else -1 */
    int32_t address; /* number of the value that is the address; -1: the recorded address */
    struct silo_descriptor descriptor; /* the descriptor of the recording */
    struct silo_dtype type;            /* type of the elements */
    /* indices in the form's `values`; -1: the recorded extent or stride */
    int32_t shape[SILO_MAX_RANK], strides[SILO_MAX_RANK];
    struct silo_descriptor *last; /* owned: the descriptor that the map in the block was made from;
                                     rank 0 if none was */
};

/* A grid that may differ between replays. */
struct silo_plan_grid {
    uint32_t node;
    const struct silo_grid_programs *declared; /* borrowed from the node's binding: a declared grid;
                                                  NULL: the grid is made from values */
    /* for a grid that is made from values: for each dimension, the index in the form's `values`;
     * -1: the constant in `extent` */
    int32_t axis[3];
    int64_t extent[3];
    uint64_t most;   /* the most programs for which the node has scratch memory; 0: no limit */
    int32_t count;   /* number of the kernel's parameters */
    uint64_t *slots; /* owned, for a declared grid: the kernel's arguments in the recording */
    uint64_t *codes; /* owned: the guard words of these arguments */
    /* owned: number of the value that replaces each argument; -1: the recorded argument */
    int32_t *slot_value;
    /* owned: for each array that the grid reads, the number of the plan's argument */
    int32_t *arrays;
    /* Owned: an entry for each entry of `arrays`: the tensor descriptor if that argument is a
     * descriptor, or rank 0 if it is an array. */
    struct silo_plan_derived *described;
};

/* Computes the place of each parameter after the node's struct silo_plan_values: as the driver
 * reports them, or else as C lays them out; on a CPU each begins at a multiple of 8 bytes. `*end`
 * is the offset after the last byte. Returns -1 if the driver reports another number of parameters,
 * which is written to `*stated`. */
int silo_plan_places(const struct silo_packing *packing, const struct silo_binary *binary,
                     const struct silo_function *function, bool on_cpu,
                     struct silo_parameter_place *places, size_t *end, int64_t *stated);

/* Memory that nodes use: an argument of the plan, or a constant range of addresses. */
struct silo_plan_memory {
    int32_t argument; /* number of the argument; -1: the memory from `low` to `high` */
    uint64_t low, high;
};

struct silo_plan_form {
    uint32_t value_count, check_count, move_count, grid_count, node_count, memory_count,
        derived_count;
    uint32_t block_bytes;
    struct silo_gpu_device *device; /* device of the nodes; NULL for the CPU */
    struct silo_plan_value *values; /* this array and those below are owned */
    struct silo_plan_check *checks;
    struct silo_plan_move *moves;
    struct silo_plan_grid *grids;
    struct silo_plan_derived *derived;
    struct silo_plan_node *nodes;
    struct silo_plan_memory memories[SILO_PLAN_MEMORIES];
    uint64_t overlaps[SILO_PLAN_MEMORIES]; /* for each memory, a bit for every memory with which it
                                              shared bytes during recording */
};

/* The result of filling a block. */
enum silo_plan_filled {
    SILO_PLAN_FILLED,
    SILO_PLAN_OTHER_FORM, /* check number `*check` does not hold, or scratch memory is too small:
                             other recorded launches (another form) are needed */
    SILO_PLAN_REFUSED,    /* `error` is filled: a grid or a tensor map is invalid */
};

/* Computes all values and writes them to the block, in which the constants are set already. */
enum silo_plan_filled silo_plan_fill(const struct silo_plan_form *form,
                                     const struct silo_plan_arguments *arguments, uint8_t *block,
                                     uint32_t *check, silo_error *error);

/* Whether the parameter may differ between replays. */
bool silo_plan_derived_varies(const struct silo_plan_derived *derived);

/* Makes a parameter in the block from the values of a replay; if `values` is NULL, from the
 * recorded values. On failure returns -1 with `error`. */
int silo_plan_make(const struct silo_plan_derived *derived, struct silo_gpu_device *device,
                   const struct silo_plan_arguments *arguments, const uint64_t *values,
                   uint8_t *block, silo_error *error);

/* Writes a parameter of at most 8 bytes from the 64-bit word of an argument. */
void silo_plan_write(uint8_t *to, uint64_t word, uint8_t pack, uint8_t bytes);

/* Computes which memories share bytes, in the form of `overlaps` of struct silo_plan_form. */
void silo_plan_overlaps(const struct silo_plan_form *form,
                        const struct silo_plan_arguments *arguments, uint64_t *overlaps);

/* The memories that a node reads and writes, as bits by their numbers. `alone`: the effects are
 * unknown, so that the node must run alone. */
struct silo_plan_effects {
    uint64_t reads, writes;
    bool alone;
};

/* Makes a node wait for the nodes `after`, which are copied. On failure returns -1 with
 * SILO_ERROR_MEMORY. */
int silo_plan_wait_for(struct silo_plan_node *node, const uint32_t *after, uint32_t count,
                       silo_error *error);

/* Decides which earlier nodes each node waits for: those whose effects conflict with its own, or
 * the one before it if `effects` is NULL. Each node owns its array `after`. On failure returns -1
 * with SILO_ERROR_MEMORY. */
int silo_plan_order(struct silo_plan_node *nodes, uint32_t count,
                    const struct silo_plan_effects *effects, const uint64_t *overlaps,
                    silo_error *error);

/* Frees the form's memory, including `places` and `after` of its nodes. */
void silo_plan_form_clear(struct silo_plan_form *form);

#endif
