/* A plan, from the arguments of a replay to the block that a backend launches (plan_backend.h).
 *
 * A form is the result of one recording of a plan: its nodes, the values that follow from the
 * plan's arguments, their conditions, and their destinations. It never changes once it is made. */
#ifndef SILO_PLAN_FILL_H
#define SILO_PLAN_FILL_H

#include "argument_word.h"
#include "grid.h"
#include "packing.h"
#include "plan_backend.h"
#include "tensor_map.h"

/* Arguments of a plan, values and pieces of memory of a form. */
#define SILO_PLAN_ARGUMENTS 64
#define SILO_PLAN_VALUES 1024
#define SILO_PLAN_MEMORIES 64
#define SILO_PLAN_NODES 16384

/* The arguments of one replay. */
struct silo_plan_arguments {
    silo_bindings bindings;     /* a slot an argument: integers as values, extents of arrays */
    const uint64_t *words;      /* one each: an integer, the bits of a double, an address */
    const uint64_t *low, *high; /* of arrays: the memory from the first byte to behind the last */
};

enum silo_plan_value_kind {
    SILO_PLAN_GIVEN,    /* the word of an argument */
    SILO_PLAN_MOVED,    /* the address of an array and a constant */
    SILO_PLAN_COMPUTED, /* a program over the arguments */
};

struct silo_plan_value {
    uint8_t kind; /* enum silo_plan_value_kind */
    int16_t argument;
    int32_t count; /* of the program */
    int64_t offset;
    silo_instruction *program; /* owned */
};

/* A condition on a value for the form to serve a replay. */
struct silo_plan_check {
    uint32_t value;
    bool fixed; /* the value is `word`; else its word as an argument of a kernel is */
    bool keyed; /* and its further word in the guard is `key` */
    struct silo_parameter parameter;
    uint64_t word, key;
};

/* A value that goes into the block. */
struct silo_plan_move {
    uint32_t value;
    uint32_t at;   /* byte of the block */
    uint8_t bytes; /* of the parameter */
    uint8_t pack;  /* enum silo_pack */
};

/* A parameter that is made of an array, or of a tensor descriptor: a tensor map or a struct. */
struct silo_plan_made {
    uint32_t at;        /* byte of the block */
    const char *kernel; /* borrowed, like the next: for messages */
    const char *name;
    const struct silo_map_form *map;     /* borrowed of the binding; NULL: a struct */
    const struct silo_struct_form *form; /* borrowed as well */
    int32_t argument;                    /* of an array: which argument of the plan */
    int32_t address;                     /* of an array or descriptor: the value, -1: as recorded */
    struct silo_descriptor descriptor;   /* as recorded */
    struct silo_dtype type;              /* of its elements */
    int32_t shape[SILO_MAX_RANK], strides[SILO_MAX_RANK]; /* values, -1: as recorded */
    struct silo_descriptor *last; /* owned: the source of the map in the block; rank 0: none */
};

/* A grid that is not the same in every replay. */
struct silo_plan_grid {
    uint32_t node;
    const struct silo_grid_programs *declared; /* borrowed of the node's binding; NULL: by values */
    int32_t axis[3]; /* of a grid by values: which, or -1: the extent below */
    int64_t extent[3];
    uint64_t most;       /* programs that the node's scratch memory is for; 0: any number */
    int32_t count;       /* parameters of the kernel */
    uint64_t *slots;     /* owned: of a declared grid, the arguments of the kernel as recorded */
    uint64_t *codes;     /* owned: their words */
    int32_t *slot_value; /* owned: the value in place of each, -1: as recorded */
    int32_t *arrays;     /* owned: of each array that it reads, which argument of the plan */
    /* Owned: of each, the tensor descriptor in its place, of rank 0 where it is an array. */
    struct silo_plan_made *described;
};

/* The places of a launch's parameters behind its struct silo_plan_values: as the driver states
 * them, or else as C lays them out; on a CPU each begins at a multiple of 8 bytes. `end`: the byte
 * behind the last. -1 if the driver states another number of parameters, which is `stated` then. */
int silo_plan_places(const struct silo_packing *packing, const struct silo_binary *binary,
                     const struct silo_function *function, bool on_cpu,
                     struct silo_parameter_place *places, size_t *end, int64_t *stated);

/* Memory that nodes use: an argument's, or memory that the plan holds. */
struct silo_plan_memory {
    int32_t argument; /* -1: low to high */
    uint64_t low, high;
};

struct silo_plan_form {
    uint32_t value_count, check_count, move_count, grid_count, node_count, memory_count, made_count;
    uint32_t block_bytes;
    struct silo_gpu_device *device; /* of its nodes; NULL: a CPU */
    struct silo_plan_value *values; /* these are owned */
    struct silo_plan_check *checks;
    struct silo_plan_move *moves;
    struct silo_plan_grid *grids;
    struct silo_plan_made *made;
    struct silo_plan_node *nodes;
    struct silo_plan_memory memories[SILO_PLAN_MEMORIES];
    uint64_t overlaps[SILO_PLAN_MEMORIES]; /* of each memory, those that it shared bytes with */
};

/* What came of filling a block. */
enum silo_plan_filled {
    SILO_PLAN_FILLED,
    SILO_PLAN_OTHER_FORM, /* a check does not hold: `*check`, or scratch memory is too small */
    SILO_PLAN_REFUSED,    /* the error says why: a grid, a tensor map */
};

/* Evaluate everything and write it to the block, which has the constants. */
enum silo_plan_filled silo_plan_fill(const struct silo_plan_form *form,
                                     const struct silo_plan_arguments *arguments, uint8_t *block,
                                     uint32_t *check, silo_error *error);

/* Whether something of a parameter is not the same in every replay. */
bool silo_plan_made_varies(const struct silo_plan_made *made);

/* Make one parameter, with the values of a replay or (NULL) as it was recorded. -1 with `error`. */
int silo_plan_make(const struct silo_plan_made *made, struct silo_gpu_device *device,
                   const struct silo_plan_arguments *arguments, const uint64_t *values,
                   uint8_t *block, silo_error *error);

/* The bytes of one parameter, at most 8, from the word of an argument. */
void silo_plan_write(uint8_t *to, uint64_t word, uint8_t pack, uint8_t bytes);

/* Which memories share bytes: `overlaps` of a form. */
void silo_plan_overlaps(const struct silo_plan_form *form,
                        const struct silo_plan_arguments *arguments, uint64_t *overlaps);

/* The effects of a node on memories: bits by their numbers; `alone`: unknown. */
struct silo_plan_effects {
    uint64_t reads, writes;
    bool alone;
};

/* Let a node wait for these: a copy, owned by the node. -1 with SILO_ERROR_MEMORY. */
int silo_plan_wait_for(struct silo_plan_node *node, const uint32_t *after, uint32_t count,
                       silo_error *error);

/* Give each node the nodes it waits for: by effects, or (`effects` NULL) the one before it. The
 * arrays are owned by the nodes. -1 with SILO_ERROR_MEMORY. */
int silo_plan_order(struct silo_plan_node *nodes, uint32_t count,
                    const struct silo_plan_effects *effects, const uint64_t *overlaps,
                    silo_error *error);

/* Free the form's memory, `places` and `after` of its nodes included. */
void silo_plan_form_clear(struct silo_plan_form *form);

#endif
