/* A bundle's manifest as C structs: made by the reader (manifest_*.c), used to choose variants.
 *
 * All memory is in the bundle's arena, lives as long as the bundle, and does not change once it is
 * made. Texts are UTF-8, may contain zero bytes, and are followed by a zero byte that `length` does
 * not count. Most structs correspond to the class of the same name in silo.core. */
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
    SILO_IS_INT,      /* the value in `integer` */
    SILO_IS_BIG_INT,  /* beyond 64 bits: its digits in `text` */
    SILO_IS_FLOAT,    /* the value in `real` */
    SILO_IS_TEXT,     /* the value in `text` */
    SILO_IS_ELEMENT,  /* an element type in `element` */
    SILO_IS_FUNCTION, /* its name in `text`, its digest in `fingerprint` */
    SILO_IS_TUPLE,    /* `count` values in `items` */
    SILO_IS_RECORD,   /* like a tuple: the record's name, then name and value of each field */
    SILO_IS_FOREIGN,  /* an object of the caller that no file can hold; messages show `text` */
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
    SILO_NODE_CONST,    /* the constant `value` */
    SILO_NODE_ARGUMENT, /* the argument `name` */
    SILO_NODE_EXTENT,   /* the extent of argument `name` along axis `value` */
    SILO_NODE_STRIDE,
    SILO_NODE_ITEMSIZE, /* bytes of an element of argument `name` */
    SILO_NODE_CONFIG,   /* the config's value `name` */
    SILO_NODE_FACT,     /* the device's fact `name` */
    SILO_NODE_OP,       /* the operation `op` on `operands` */
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

/* A parameter of a kernel's source (whose kind may be SILO_PARAMETER_ANY), or of a variant (always
 * typed). */
struct silo_signature_parameter {
    struct silo_string name;
    uint8_t kind;     /* enum silo_parameter_kind */
    uint8_t effect;   /* enum silo_effect */
    uint16_t element; /* enum silo_element; 0 if it has none */
    bool has_default, specialize, align;
    struct silo_value fallback; /* the default value, if `has_default` */
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
    const int64_t *strides;                    /* in elements; NULL if any strides are allowed */
    const struct silo_dynamic_layout *dynamic; /* if set, replaces `shape` and `strides` */
};

struct silo_specialization {
    uint32_t fact_count, constant_count, extent_count;
    const struct silo_named_fact *facts; /* in the same order as in Python */
    const struct silo_named_value *constants;
    const struct silo_named_extents *extents;
    bool has_grid; /* the code works only for the grid `grid` */
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
    struct silo_string name; /* name of the kernel's parameter; "" for scratch memory */
    struct silo_string type; /* "ptr", "i32", "tensormap", ... */
    /* part of a tensor descriptor ("shape.0"), or member of a struct by value; else "" */
    struct silo_string part;
    const struct silo_struct_form *form; /* the members of a "struct", else NULL */
};

/* A dimension of an array's tensor map. */
struct silo_map_axis {
    int64_t axis; /* axis of the array; -1: a dimension with the extent and stride (in elements)
                     below */
    int64_t extent, stride;
};

struct silo_tensor_map_info {
    struct silo_string name;
    int32_t swizzle, element_type;
    uint32_t element_bytes, rank;
    const int64_t *box; /* extents of the box in elements, outermost first */
    bool fp4_padded;
    const struct silo_map_axis *axes; /* for the map of an array: the axis of each dimension of the
                                         box; NULL for a descriptor's map */
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
    /* why the code accesses memory outside of its arguments; "" if it is not known to do so */
    struct silo_string hidden_memory;
    uint32_t blob; /* number of the blob */
    uint32_t sidecar_count;
    const uint32_t *sidecars;
};

/* Variants that share target, signature, specialization and kind of blob. Apart from the config,
 * these decide whether a call may use a variant. */
struct silo_group {
    const struct silo_target *target;
    const struct silo_signature *signature;
    const struct silo_specialization *specialization;
    struct silo_string blob_kind; /* "cubin", "so", ... */
    uint32_t count;
    const uint32_t *numbers; /* numbers of the variants, ascending */
};

/* ---- dispatch rules (silo.core.dispatch) ---- */

struct silo_rule {
    const struct silo_value *bucket; /* a value for each name of the key */
    const struct silo_config *config;
};

struct silo_bound {
    struct silo_string name;
    bool has_above, has_most;
    int64_t above, most; /* above < value <= most; limits beyond 64 bits are INT64_MAX */
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
    const struct silo_named_extents *extents; /* the rules apply to variants with these extents */
    uint32_t rule_count, step_count;
    const struct silo_rule *rules; /* in canonical order: of equally near buckets the first wins */
    const struct silo_step *steps; /* a decision list for buckets without a rule; may be NULL */
    const struct silo_config *fallback;
    /* The compiler for each rule, then for the fallback, then for each step, as a row of the table
     * of compilers. NULL: any compiler. */
    const uint32_t *compilers;
};

struct silo_derived {
    struct silo_string name;
    const struct silo_node *node;
};

/* The facts about a kernel that launches need: everything but its variants (BundleKernel,
 * OpenKernel). */
struct silo_kernel_info {
    struct silo_string name;
    /* kind of the source; "" for Triton, or for code that was added in compiled form */
    struct silo_string kind;
    const struct silo_signature *signature;
    uint32_t key_count, config_name_count, derived_count, rules_count, variant_count, group_count;
    const struct silo_string *key, *config_names;
    uint32_t contiguous_count;
    const struct silo_string *contiguous; /* arrays that must be contiguous */
    const struct silo_derived *derived;
    uint32_t grid_axes; /* 0: no grid is declared */
    const struct silo_node *grid[3];
    const struct silo_rules *rules;
    const struct silo_group *groups; /* in order of first occurrence */
};

/* ---- plans (silo.core.recorded_plans) ---- */

enum silo_recorded_kind {
    SILO_RECORDED_ARRAY, /* an array with `element` and `rank` */
    SILO_RECORDED_INTEGER,
    SILO_RECORDED_FLOAT,
    SILO_RECORDED_VALUE, /* only the value `value` */
};

struct silo_recorded_argument {
    uint8_t kind;     /* enum silo_recorded_kind */
    uint16_t element; /* enum silo_element */
    int32_t rank;
    struct silo_value value;
};

enum silo_recorded_source_kind {
    SILO_RECORDED_GIVEN,    /* the plan's argument `argument`, unchanged */
    SILO_RECORDED_COMPUTED, /* `node`, evaluated over the plan's arguments */
    SILO_RECORDED_CONSTANT, /* the constant `value` */
};

struct silo_recorded_source {
    struct silo_string parameter;
    uint8_t kind; /* enum silo_recorded_source_kind */
    uint32_t argument;
    const struct silo_node *node;
    struct silo_value value;
};

struct silo_recorded_launch {
    /* name of a kernel; the file may lack this kernel if the file is a slice */
    struct silo_string kernel;
    uint32_t source_count, option_count;
    const struct silo_recorded_source *sources;
    uint32_t grid_axes; /* 0: the kernel's declared grid is used */
    const struct silo_node *grid[3];
    const struct silo_named_value *options;
};

struct silo_recorded_form {
    const struct silo_recorded_argument *arguments; /* an entry for each parameter of the plan */
    uint32_t hold_count, launch_count;
    /* conditions on the plan's arguments; the launches are made only if none of them is 0 */
    const struct silo_node *const *holds;
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
    bool compressed; /* stored as a zstd frame; else raw */
};

/* ---- the reader ---- */

struct silo_reader; /* an open bundle: bundle_reader.c */

/* The source that silo_reader_open reads. The bytes are borrowed as long as the reader lives. */
struct silo_reader_source {
    const uint8_t *data;
    size_t bytes;
    const char *name; /* used in messages; copied */
    /* the most bytes of memory that reading may take beyond the file's size; 0: 64 MiB */
    uint64_t file_memory;
    bool may_change; /* the bytes are a mapped file, which other processes may change */
    struct silo_known_names known; /* names that plug-ins define; copied */
};

/* Opens a bundle: checks the header, the manifest's hash and text, the version, the blob table and
 * the names of the kernels. On failure returns NULL with `error` filled. */
struct silo_reader *silo_reader_open(const struct silo_reader_source *source, silo_error *error);
void silo_reader_close(struct silo_reader *reader);

/* Replaces the known names that plug-ins define. Parts of the file that were refused because of an
 * unknown name are then read again. On failure returns -1 with `error` filled. */
int silo_reader_learn(struct silo_reader *reader, const struct silo_known_names *names,
                      silo_error *error);

/* Returns the verified text of the manifest, of `*bytes` bytes, which the caller frees; NULL with
 * `error` filled. */
char *silo_reader_text(const struct silo_reader *reader, size_t *bytes, silo_error *error);

/* Returns the parsed manifest (manifest_state.h), whose JSON never changes. */
struct silo_manifest;
const struct silo_manifest *silo_reader_manifest(const struct silo_reader *reader);

const char *silo_reader_identity(const struct silo_reader *reader); /* manifest's sha256 */
const char *silo_reader_name(const struct silo_reader *reader);
uint32_t silo_reader_blob_count(const struct silo_reader *reader);
const struct silo_blob *silo_reader_blob(const struct silo_reader *reader, uint32_t index);

/* Returns the number of the first blob with this sha256 (in hex) and kind (NULL: any kind), or -1.
 */
int64_t silo_reader_blob_index(const struct silo_reader *reader, const char *sha256, size_t length,
                               const struct silo_string *kind);

uint32_t silo_reader_kernel_count(const struct silo_reader *reader);
struct silo_string silo_reader_kernel_name(const struct silo_reader *reader, uint32_t index);

/* Returns the number of the kernel with this name, or -1. */
int64_t silo_reader_kernel_index(const struct silo_reader *reader, const char *name);

/* Return the number of plans, and plan number `index` in the order of the plans' names, or NULL if
 * there are not so many. */
uint32_t silo_reader_plan_count(const struct silo_reader *reader);
const struct silo_recorded_plan *silo_reader_plan(const struct silo_reader *reader, uint32_t index);

/* silo_reader_head returns a kernel without its groups. silo_reader_row returns a row of a table
 * (enum silo_table_kind), which must exist. Each is decoded and checked at its first use. May be
 * called from any thread. On failure returns NULL with `error` filled. */
const struct silo_kernel_info *silo_reader_head(struct silo_reader *reader, uint32_t index,
                                                silo_error *error);
const void *silo_reader_row(struct silo_reader *reader, int table, uint32_t number,
                            silo_error *error);

/* silo_reader_kernel returns a kernel with its groups, silo_reader_variant one of its variants.
 * Each is decoded and checked at its first use. May be called from any thread. On failure returns
 * NULL with `error` filled. */
const struct silo_kernel_info *silo_reader_kernel(struct silo_reader *reader, uint32_t index,
                                                  silo_error *error);
const struct silo_variant *silo_reader_variant(struct silo_reader *reader, uint32_t kernel,
                                               uint32_t number, silo_error *error);

/* Whether variant `number` of a kernel has this config; does not decode the variant. */
bool silo_reader_has_config(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                            const struct silo_config *config);

/* Whether variant `number` of a kernel was made by the compiler in this row of the table; does not
 * decode the variant. */
bool silo_reader_has_compiler(struct silo_reader *reader, uint32_t kernel, uint32_t number,
                              uint32_t compiler);

/* Checks the whole file, including every table row and every variant, like Bundle.contents() in
 * Python. On failure returns -1 with `error` filled. */
int silo_reader_check(struct silo_reader *reader, silo_error *error);

/* Checks a kernel with all its variants. On failure returns -1 with `error` filled. */
int silo_reader_check_kernel(struct silo_reader *reader, uint32_t index, silo_error *error);

/* Checks that a blob fits the memory that reading it as a whole may take (`file_memory`). On
 * failure returns -1 with `error` filled. */
int silo_reader_allows(const struct silo_reader *reader, uint32_t blob, silo_error *error);

/* Copies the verified bytes of a blob to `to`, memory of the blob's size. The caller has checked
 * the blob with silo_reader_allows. After -1 with `error` filled, the contents of the memory are
 * undefined. */
int silo_reader_copy(const struct silo_reader *reader, uint32_t blob, uint8_t *to,
                     silo_error *error);

/* Returns the verified bytes of a blob, hashed each time. If the blob is stored raw and the source
 * cannot change, this is a pointer into the source and `*owned` is NULL; otherwise it is memory
 * that the caller frees through `*owned`. On failure returns NULL with `error` filled. */
const uint8_t *silo_reader_bytes(struct silo_reader *reader, uint32_t blob, void **owned,
                                 silo_error *error);

/* Computes the digest, in hex, that identifies native code for consent (HostCode.digest,
 * docs/bundle-format.md section 6). On failure returns -1 with `error` filled. */
int silo_reader_host_digest(struct silo_reader *reader, uint32_t kernel, uint32_t variant,
                            char digest[65], silo_error *error);

#endif
