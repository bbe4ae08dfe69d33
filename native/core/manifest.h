/* A bundle's manifest as values: made by the reader (manifest_*.c), read by the choice.
 *
 * Everything is in the bundle's arena, lives as long as the bundle and never changes once it is
 * made. Texts are UTF-8, end with a 0 that `length` does not count, and may hold zeros. Each struct
 * is the value of silo.core with the same name. */
#ifndef SILO_MANIFEST_H
#define SILO_MANIFEST_H

#include "base.h"
#include "dynamic_layout.h"
#include "error.h"
#include "known_names.h"
#include "parameter.h"
#include "struct_form.h"

struct silo_string {
    const char *data;
    uint32_t length;
};

/* ---- values of configs, constants and keys (silo.core.values) ---- */

enum silo_value_type {
    SILO_IS_NONE,
    SILO_IS_BOOL,     /* `integer` is 0 or 1 */
    SILO_IS_INT,      /* `integer` */
    SILO_IS_BIG_INT,  /* beyond 64 bits; `text` has its digits */
    SILO_IS_FLOAT,    /* `real` */
    SILO_IS_TEXT,     /* `text` */
    SILO_IS_ELEMENT,  /* an element type: `element` */
    SILO_IS_FUNCTION, /* `text` is its name, `fingerprint` its digest */
    SILO_IS_TUPLE,    /* `items`, `count` of them */
    SILO_IS_RECORD,   /* as a tuple: its name, then the name and the value of each field */
    SILO_IS_FOREIGN,  /* a caller's object that no file can hold; messages show `text` */
};

struct silo_value {
    uint8_t type;     /* enum silo_value_type */
    uint16_t element; /* enum silo_element */
    uint32_t count;
    union {
        int64_t integer;
        double real;
        struct silo_string text;
        const struct silo_value *items;
    };
    struct silo_string fingerprint;
};

struct silo_named_value {
    struct silo_string name;
    struct silo_value value;
};

/* ---- expressions (silo.core.expressions) ---- */

enum silo_node_type {
    SILO_NODE_CONST,    /* `value` */
    SILO_NODE_ARGUMENT, /* `name` */
    SILO_NODE_EXTENT,   /* `name`, `value` is the axis */
    SILO_NODE_STRIDE,
    SILO_NODE_ITEMSIZE, /* `name` */
    SILO_NODE_CONFIG,   /* `name` */
    SILO_NODE_FACT,     /* `name`, of the device */
    SILO_NODE_OP,       /* `op`, `operands` */
};

enum silo_node_op {
    SILO_NODE_ADD,
    SILO_NODE_SUB,
    SILO_NODE_MUL,
    SILO_NODE_FLOORDIV,
    SILO_NODE_MOD,
    SILO_NODE_CDIV,
    SILO_NODE_MIN,
    SILO_NODE_MAX,
    SILO_NODE_NEG,
    SILO_NODE_EQ,
    SILO_NODE_NE,
    SILO_NODE_LT,
    SILO_NODE_LE,
    SILO_NODE_GT,
    SILO_NODE_GE,
    SILO_NODE_AND,
    SILO_NODE_OR,
    SILO_NODE_NOT,
    SILO_NODE_SELECT,
    SILO_NODE_NEXT_POW2,
};

struct silo_node {
    uint8_t type; /* enum silo_node_type */
    uint8_t op;   /* enum silo_node_op */
    uint8_t operand_count;
    int64_t value;
    struct silo_string name;
    const struct silo_node *operands[3];
};

/* ---- compiled code ---- */

enum silo_effect { SILO_EFFECT_NONE, SILO_EFFECT_READ, SILO_EFFECT_WRITE, SILO_EFFECT_BOTH };

/* A parameter of a source (kind may be SILO_PARAMETER_ANY) or of a variant (typed). */
struct silo_signature_parameter {
    struct silo_string name;
    uint8_t kind;     /* enum silo_parameter_kind */
    uint8_t effect;   /* enum silo_effect */
    uint16_t element; /* enum silo_element; 0: none */
    bool has_default, specialize, align;
    struct silo_value fallback; /* the default */
};

struct silo_signature {
    uint32_t count;
    const struct silo_signature_parameter *parameters;
};

enum silo_fact {
    SILO_FACT_ALIGNED16,
    SILO_FACT_DIVISIBLE16,
    SILO_FACT_EQUAL1,
    SILO_FACT_NONE,
    SILO_FACT_RANGE32,
    SILO_FACT_CONFIG_BLOCK,
};

struct silo_named_fact {
    struct silo_string name;
    uint8_t fact; /* enum silo_fact */
};

struct silo_named_extents {
    struct silo_string name;
    uint32_t rank;
    const int64_t *shape;
    const int64_t *strides;                    /* in elements; NULL: any */
    const struct silo_dynamic_layout *dynamic; /* instead of `shape` and `strides`, or NULL */
};

struct silo_specialization {
    uint32_t fact_count, constant_count, extent_count;
    const struct silo_named_fact *facts; /* sorted, as in Python */
    const struct silo_named_value *constants;
    const struct silo_named_extents *extents;
    bool has_grid; /* the code was made for `grid` */
    int64_t grid[3];
};

struct silo_config {
    uint32_t value_count, option_count;
    const struct silo_named_value *values, *options;
};

struct silo_target {
    struct silo_string text; /* "cuda:sm_90a" */
    struct silo_string kind; /* "cuda" */
    struct silo_string arch; /* "sm_90a" */
};

/* One parameter of a binary (silo.core.launch_info.LayoutSlot). */
struct silo_layout_slot {
    struct silo_string name;             /* of the kernel's parameter; "" for scratch memory */
    struct silo_string type;             /* "ptr", "i32", "tensormap", ... */
    struct silo_string part;             /* of a tensor descriptor: "shape.0", ...; "" otherwise */
    const struct silo_struct_form *form; /* the members of a "struct", else NULL */
};

/* One dimension of an array's tensor map. */
struct silo_map_axis {
    int64_t axis; /* of the array; -1: the extent and the stride (in elements) that follow */
    int64_t extent, stride;
};

struct silo_tensor_map_info {
    struct silo_string name;
    int32_t swizzle, element_type;
    uint32_t element_bytes, rank;
    const int64_t *box; /* elements, outermost first */
    bool fp4_padded;
    const struct silo_map_axis
        *axes; /* axes of an array's map, one for each axis of the box; NULL: a descriptor's map */
};

struct silo_launch_option {
    struct silo_string name; /* "cpu_chunk", ... */
    int64_t value;
};

struct silo_launch_info {
    struct silo_string entry;
    uint32_t slot_count, map_count, option_count;
    const struct silo_layout_slot *layout;
    const struct silo_tensor_map_info *maps;
    const struct silo_launch_option *options;
    int64_t num_warps, threads, block[3], cluster[3];
    int64_t shared_bytes, scratch_bytes, scratch_align, profile_bytes, profile_align;
    bool cooperative, pdl, counts_blocks;
};

struct silo_variant {
    const struct silo_signature *signature;
    const struct silo_specialization *specialization;
    const struct silo_config *config;
    const struct silo_target *target;
    const struct silo_launch_info *launch;
    struct silo_string kernel, source, compiler, job;
    /* The reason why its code reaches memory outside of its arguments; empty if that is unknown. */
    struct silo_string hidden_memory;
    uint32_t blob; /* index into the blobs */
    uint32_t sidecar_count;
    const uint32_t *sidecars;
};

/* Variants that share the facts that decide whether a call may use them, besides their configs. */
struct silo_group {
    const struct silo_target *target;
    const struct silo_signature *signature;
    const struct silo_specialization *specialization;
    struct silo_string blob_kind; /* "cubin", "so", ... */
    uint32_t count;
    const uint32_t *numbers; /* of its variants, ascending */
};

/* ---- how a config is chosen (silo.core.dispatch, silo.core.dispatch) ---- */

struct silo_rule {
    const struct silo_value *bucket; /* one value a name of the key */
    const struct silo_config *config;
};

struct silo_bound {
    struct silo_string name;
    bool has_above, has_most;
    int64_t above, most; /* above < value <= most; what 64 bits do not hold is INT64_MAX */
};

struct silo_step {
    uint32_t bound_count;
    const struct silo_bound *bounds;
    const struct silo_config *config;
};

struct silo_rules {
    const struct silo_target *target;
    const struct silo_signature *signature;
    uint32_t extent_count;
    const struct silo_named_extents *extents; /* the rules are for variants of these */
    uint32_t rule_count, step_count;
    const struct silo_rule *rules; /* in canonical order: of equally near ones the first wins */
    const struct silo_step *steps; /* the decision list for other buckets; NULL: none */
    const struct silo_config *fallback;
    /* Rows of the table of compilers: one for each rule, one for the fallback, one for each step.
     * NULL: code of any compiler serves. */
    const uint32_t *compilers;
};

struct silo_derived {
    struct silo_string name;
    const struct silo_node *node;
};

/* A kernel as launches see it: all but its variants (BundleKernel, OpenKernel). */
struct silo_kernel_info {
    struct silo_string name;
    struct silo_string kind; /* kind of its source; "": Triton's, or code that was given compiled */
    const struct silo_signature *signature;
    uint32_t key_count, config_name_count, derived_count, rules_count, variant_count, group_count;
    const struct silo_string *key, *config_names;
    uint32_t contiguous_count;
    const struct silo_string *contiguous; /* arrays that calls give contiguous */
    const struct silo_derived *derived;
    uint32_t grid_axes; /* 0: none declared */
    const struct silo_node *grid[3];
    const struct silo_rules *rules;
    const struct silo_group *groups; /* in order of first occurrence */
};

/* ---- plans (silo.core.recorded_plans) ---- */

enum silo_recorded_kind {
    SILO_RECORDED_ARRAY, /* `element` and `rank` */
    SILO_RECORDED_INTEGER,
    SILO_RECORDED_FLOAT,
    SILO_RECORDED_VALUE, /* `value` and no other */
};

struct silo_recorded_argument {
    uint8_t kind;     /* enum silo_recorded_kind */
    uint16_t element; /* enum silo_element */
    int32_t rank;
    struct silo_value value;
};

enum silo_recorded_source_kind {
    SILO_RECORDED_GIVEN,    /* `argument` of the plan, as it is */
    SILO_RECORDED_COMPUTED, /* `node` over the plan's arguments */
    SILO_RECORDED_CONSTANT, /* `value` */
};

struct silo_recorded_source {
    struct silo_string parameter;
    uint8_t kind; /* enum silo_recorded_source_kind */
    uint32_t argument;
    const struct silo_node *node;
    struct silo_value value;
};

struct silo_recorded_launch {
    struct silo_string kernel; /* which need not be in the file: a slice has some */
    uint32_t source_count, option_count;
    const struct silo_recorded_source *sources;
    uint32_t grid_axes; /* 0: the declared grid */
    const struct silo_node *grid[3];
    const struct silo_named_value *options;
};

struct silo_recorded_form {
    const struct silo_recorded_argument *arguments; /* one a parameter of the plan */
    uint32_t hold_count, launch_count;
    const struct silo_node *const *holds; /* expressions that must not be 0 */
    const struct silo_recorded_launch *launches;
};

struct silo_recorded_plan {
    struct silo_string name;
    struct silo_signature parameters; /* only their names are read */
    uint32_t form_count;
    const struct silo_recorded_form *forms;
};

struct silo_blob {
    char sha256[65]; /* of the raw bytes, in hex */
    struct silo_string kind;
    uint64_t raw_bytes, offset, stored_bytes;
    bool compressed; /* a zstd frame; else raw */
};

/* ---- the reader ---- */

struct silo_reader; /* an open bundle: bundle_reader.c */

/* The parameters of a reader. Bytes are borrowed for its life. */
struct silo_reader_source {
    const uint8_t *data;
    size_t bytes;
    const char *name;     /* for messages; copied */
    uint64_t file_memory; /* bytes that reading may take beyond the file's own; 0: 64 MiB */
    bool may_change;      /* the bytes are a file's pages, which others may write meanwhile */
    struct silo_known_names known; /* names of plug-ins, that the caller knows; copied */
};

/* Check the header, the manifest's hash, its text, the version, the blob table and the names of the
 * kernels. NULL with `error` filled. */
struct silo_reader *silo_reader_open(const struct silo_reader_source *source, silo_error *error);
void silo_reader_close(struct silo_reader *reader);

/* From now on these are the known names of plug-ins: a file that was refused for a name is read
 * again. -1 with `error` filled. */
int silo_reader_learn(struct silo_reader *reader, const struct silo_known_names *names,
                      silo_error *error);

/* The verified text of the manifest, `*bytes` long, which the caller frees; NULL with `error`
 * filled. */
char *silo_reader_text(const struct silo_reader *reader, size_t *bytes, silo_error *error);

/* The parsed manifest (manifest_state.h), whose JSON never changes. */
struct silo_manifest;
const struct silo_manifest *silo_reader_manifest(const struct silo_reader *reader);

const char *silo_reader_identity(const struct silo_reader *reader); /* hex */
const char *silo_reader_name(const struct silo_reader *reader);
uint32_t silo_reader_blob_count(const struct silo_reader *reader);
const struct silo_blob *silo_reader_blob(const struct silo_reader *reader, uint32_t index);

/* The first blob with these bytes, by their sha256 in hex, and of this kind if `kind` is not NULL;
 * -1: none. */
int64_t silo_reader_blob_index(const struct silo_reader *reader, const char *sha256, size_t length,
                               const struct silo_string *kind);

uint32_t silo_reader_kernel_count(const struct silo_reader *reader);
struct silo_string silo_reader_kernel_name(const struct silo_reader *reader, uint32_t index);

/* The kernel of a name; -1: none. */
int64_t silo_reader_kernel_index(const struct silo_reader *reader, const char *name);

/* Plans in the order of their names; NULL past the end. */
uint32_t silo_reader_plan_count(const struct silo_reader *reader);
const struct silo_recorded_plan *silo_reader_plan(const struct silo_reader *reader, uint32_t index);

/* Check and return a kernel without its groups, or an existing row of a table (enum
 * silo_table_kind); decoded at the first use and kept. From any thread. NULL with `error` filled.
 * */
const struct silo_kernel_info *silo_reader_head(struct silo_reader *reader, uint32_t index,
                                                silo_error *error);
const void *silo_reader_row(struct silo_reader *reader, int table, uint32_t number,
                            silo_error *error);

/* Check and return a kernel, and one of its variants; decoded at the first use and kept. From any
 * thread. NULL with `error` filled. */
const struct silo_kernel_info *silo_reader_kernel(struct silo_reader *reader, uint32_t index,
                                                  silo_error *error);
const struct silo_variant *silo_reader_variant(struct silo_reader *reader, uint32_t kernel,
                                               uint32_t number, silo_error *error);

/* Whether variant `number` of a kernel has this config, found without decoding the
 * variant. */
bool silo_reader_has_config(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                            const struct silo_config *config);

/* Whether variant `number` of a kernel is by the compiler of this row of the table, found without
 * decoding the variant. */
bool silo_reader_has_compiler(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                              uint32_t compiler);

/* Everything, every table row and every variant of every kernel included, as Bundle.contents()
 * does. -1 with `error` filled. */
int silo_reader_check(struct silo_reader *reader, silo_error *error);

/* One kernel with all its variants. -1 with `error` filled. */
int silo_reader_check_kernel(struct silo_reader *reader, uint32_t index, silo_error *error);

/* Whether a blob may be read in one piece; -1 with `error` filled. */
int silo_reader_allows(const struct silo_reader *reader, uint32_t blob, silo_error *error);

/* Write the verified bytes of a blob that is allowed to memory of its size. -1 with `error` filled,
 * and then the memory holds anything. */
int silo_reader_copy(const struct silo_reader *reader, uint32_t blob, uint8_t *to,
                     silo_error *error);

/* The verified bytes of a blob: a pointer into the source if the blob is stored raw and cannot
 * change
 * (`*owned` NULL), else memory of the caller's, to be freed through `*owned`. Hashed each time.
 * NULL with `error` filled. */
const uint8_t *silo_reader_bytes(struct silo_reader *reader, uint32_t blob, void **owned,
                                 silo_error *error);

/* The digest to which consent for native code is given (HostCode.digest, docs/bundle-format.md
 * section 6), in hex. -1 with `error` filled. */
int silo_reader_host_digest(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                            char digest[65], silo_error *error);

#endif
