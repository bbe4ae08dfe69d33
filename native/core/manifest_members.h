/* The members of a manifest's objects: names, and the minor version of the format that added each.
 *
 * Printed by python scripts/manifest_members.py from the fields that declare them
 * (silo.bundle.contents, silo.core); scripts/check compares. */
#ifndef SILO_MANIFEST_MEMBERS_H
#define SILO_MANIFEST_MEMBERS_H

#include "base.h"

/* clang-format off */

/* How silo_check_members checks a member. The reader's own code checks the values that it uses. */
enum silo_member_check {
    SILO_CHECK_NONE,
    SILO_CHECK_TEXT, /* a text of at most 65,536 characters */
    SILO_CHECK_NAME, /* a text that is printable, not empty, at most 1,024 characters */
    SILO_CHECK_FLAG, /* true; a member that is false must be left out */
};

struct silo_member {
    const char *name;
    uint8_t since; /* the minor version that added it; 0: every version has it */
    uint8_t check; /* enum silo_member_check */
};

/* The members of a JSON object: the first `required` of the `count` members are always present, the
 * others may be left out. */
struct silo_member_list {
    uint8_t required, count;
    const struct silo_member *members;
};

/* The newest version of the format; the minor version that added structs and dynamic layouts. */
enum { SILO_MAJOR = 1, SILO_MINOR = 9, SILO_LAYOUTS_MINOR = 3 };
enum { SILO_MEMBERS_MINOR = 8 }; /* the minor version that added structs by value */

/* The manifest's tables, whose rows kernels and variants refer to by number. */
enum silo_table_kind {
    SILO_TABLE_COMPILERS,
    SILO_TABLE_CONFIGS,
    SILO_TABLE_LAUNCHES,
    SILO_TABLE_REASONS,
    SILO_TABLE_SIGNATURES,
    SILO_TABLE_SOURCES,
    SILO_TABLE_SPECIALIZATIONS,
    SILO_TABLE_TARGETS,
    SILO_TABLES
};
static const struct silo_member SILO_TABLE_NAMES[SILO_TABLES] = {
    {"compilers", 0, SILO_CHECK_NONE},
    {"configs", 0, SILO_CHECK_NONE},
    {"launches", 0, SILO_CHECK_NONE},
    {"reasons", 0, SILO_CHECK_NONE},
    {"signatures", 0, SILO_CHECK_NONE},
    {"sources", 0, SILO_CHECK_NONE},
    {"specializations", 0, SILO_CHECK_NONE},
    {"targets", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_TABLE_LIST = {SILO_TABLES, SILO_TABLES, SILO_TABLE_NAMES};

/* The JSON members of the manifest; required members first. */
enum silo_top_member {
    SILO_TOP_BLOBS,
    SILO_TOP_FORMAT,
    SILO_TOP_KERNELS,
    SILO_TOP_NOTES,
    SILO_TOP_PRODUCER,
    SILO_TOP_TABLES,
    SILO_TOP_TOOLCHAIN,
    SILO_TOP_ATTACHMENTS,
    SILO_TOP_PLANS,
    SILO_TOP_MEMBERS
};
enum {
    SILO_TOP_ATTACHMENTS_SINCE = 4,
    SILO_TOP_PLANS_SINCE = 7,
};
static const struct silo_member SILO_TOP_NAMES[SILO_TOP_MEMBERS] = {
    {"blobs", 0, SILO_CHECK_NONE},
    {"format", 0, SILO_CHECK_NONE},
    {"kernels", 0, SILO_CHECK_NONE},
    {"notes", 0, SILO_CHECK_NONE},
    {"producer", 0, SILO_CHECK_NONE},
    {"tables", 0, SILO_CHECK_NONE},
    {"toolchain", 0, SILO_CHECK_NONE},
    {"attachments", 4, SILO_CHECK_NONE},
    {"plans", 7, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_TOP_LIST = {7, SILO_TOP_MEMBERS, SILO_TOP_NAMES};

/* The JSON members of a kernel; required members first. */
enum silo_kernel_member {
    SILO_KERNEL_CASES,
    SILO_KERNEL_CONFIG_NAMES,
    SILO_KERNEL_DERIVED,
    SILO_KERNEL_GRID,
    SILO_KERNEL_KEY,
    SILO_KERNEL_NAME,
    SILO_KERNEL_RULES,
    SILO_KERNEL_SIGNATURE,
    SILO_KERNEL_TRIALS,
    SILO_KERNEL_VARIANTS,
    SILO_KERNEL_KIND,
    SILO_KERNEL_CONTIGUOUS,
    SILO_KERNEL_MEMBERS
};
enum {
    SILO_KERNEL_KIND_SINCE = 2,
    SILO_KERNEL_CONTIGUOUS_SINCE = 6,
};
static const struct silo_member SILO_KERNEL_NAMES[SILO_KERNEL_MEMBERS] = {
    {"cases", 0, SILO_CHECK_NONE},
    {"config_names", 0, SILO_CHECK_NONE},
    {"derived", 0, SILO_CHECK_NONE},
    {"grid", 0, SILO_CHECK_NONE},
    {"key", 0, SILO_CHECK_NONE},
    {"name", 0, SILO_CHECK_NAME},
    {"rules", 0, SILO_CHECK_NONE},
    {"signature", 0, SILO_CHECK_NONE},
    {"trials", 0, SILO_CHECK_NONE},
    {"variants", 0, SILO_CHECK_NONE},
    {"kind", 2, SILO_CHECK_NAME},
    {"contiguous", 6, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_KERNEL_LIST = {10, SILO_KERNEL_MEMBERS, SILO_KERNEL_NAMES};

/* The JSON members of a variant; required members first. */
enum silo_variant_member {
    SILO_VARIANT_BASIS,
    SILO_VARIANT_BLOB,
    SILO_VARIANT_COMPILER,
    SILO_VARIANT_CONFIG,
    SILO_VARIANT_JOB,
    SILO_VARIANT_LAUNCH,
    SILO_VARIANT_REASON,
    SILO_VARIANT_SIDECARS,
    SILO_VARIANT_SIGNATURE,
    SILO_VARIANT_SOURCE,
    SILO_VARIANT_SPECIALIZATION,
    SILO_VARIANT_TARGET,
    SILO_VARIANT_HIDDEN_MEMORY,
    SILO_VARIANT_MEMBERS
};
enum {
    SILO_VARIANT_HIDDEN_MEMORY_SINCE = 5,
};
static const struct silo_member SILO_VARIANT_NAMES[SILO_VARIANT_MEMBERS] = {
    {"basis", 0, SILO_CHECK_NONE},
    {"blob", 0, SILO_CHECK_NONE},
    {"compiler", 0, SILO_CHECK_NONE},
    {"config", 0, SILO_CHECK_NONE},
    {"job", 0, SILO_CHECK_TEXT},
    {"launch", 0, SILO_CHECK_NONE},
    {"reason", 0, SILO_CHECK_NONE},
    {"sidecars", 0, SILO_CHECK_NONE},
    {"signature", 0, SILO_CHECK_NONE},
    {"source", 0, SILO_CHECK_NONE},
    {"specialization", 0, SILO_CHECK_NONE},
    {"target", 0, SILO_CHECK_NONE},
    {"hidden_memory", 5, SILO_CHECK_NAME},
};
static const struct silo_member_list SILO_VARIANT_LIST = {12, SILO_VARIANT_MEMBERS, SILO_VARIANT_NAMES};

/* The JSON members of an entry of a kernel's list `rules`; required members first. */
enum silo_rules_member {
    SILO_RULES_RULES,
    SILO_RULES_SIGNATURE,
    SILO_RULES_TARGET,
    SILO_RULES_SPACE,
    SILO_RULES_EXTENTS,
    SILO_RULES_COMPILERS,
    SILO_RULES_MEMBERS
};
enum {
    SILO_RULES_SPACE_SINCE = 1,
    SILO_RULES_EXTENTS_SINCE = 2,
    SILO_RULES_COMPILERS_SINCE = 9,
};
static const struct silo_member SILO_RULES_NAMES[SILO_RULES_MEMBERS] = {
    {"rules", 0, SILO_CHECK_NONE},
    {"signature", 0, SILO_CHECK_NONE},
    {"target", 0, SILO_CHECK_NONE},
    {"space", 1, SILO_CHECK_NONE},
    {"extents", 2, SILO_CHECK_NONE},
    {"compilers", 9, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_RULES_LIST = {3, SILO_RULES_MEMBERS, SILO_RULES_NAMES};

/* The JSON members of a parameter of a signature; required members first. */
enum silo_param_member {
    SILO_PARAM_NAME,
    SILO_PARAM_KIND,
    SILO_PARAM_DTYPE,
    SILO_PARAM_EFFECT,
    SILO_PARAM_DEFAULT,
    SILO_PARAM_SPECIALIZE,
    SILO_PARAM_ALIGN,
    SILO_PARAM_MEMBERS
};
static const struct silo_member SILO_PARAM_NAMES[SILO_PARAM_MEMBERS] = {
    {"name", 0, SILO_CHECK_NONE},
    {"kind", 0, SILO_CHECK_NONE},
    {"dtype", 0, SILO_CHECK_NONE},
    {"effect", 0, SILO_CHECK_NONE},
    {"default", 0, SILO_CHECK_NONE},
    {"specialize", 0, SILO_CHECK_NONE},
    {"align", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_PARAM_LIST = {2, SILO_PARAM_MEMBERS, SILO_PARAM_NAMES};

/* The JSON members of a specialization; required members first. */
enum silo_specialization_member {
    SILO_SPECIALIZATION_FACTS,
    SILO_SPECIALIZATION_CONSTANTS,
    SILO_SPECIALIZATION_EXTENTS,
    SILO_SPECIALIZATION_GRID,
    SILO_SPECIALIZATION_MEMBERS
};
enum {
    SILO_SPECIALIZATION_EXTENTS_SINCE = 2,
    SILO_SPECIALIZATION_GRID_SINCE = 2,
};
static const struct silo_member SILO_SPECIALIZATION_NAMES[SILO_SPECIALIZATION_MEMBERS] = {
    {"facts", 0, SILO_CHECK_NONE},
    {"constants", 0, SILO_CHECK_NONE},
    {"extents", 0, SILO_CHECK_NONE},
    {"grid", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_SPECIALIZATION_LIST = {2, SILO_SPECIALIZATION_MEMBERS, SILO_SPECIALIZATION_NAMES};

/* The JSON members of the extents of an array; required members first. */
enum silo_array_member {
    SILO_ARRAY_SHAPE,
    SILO_ARRAY_STRIDES,
    SILO_ARRAY_MEMBERS
};
static const struct silo_member SILO_ARRAY_NAMES[SILO_ARRAY_MEMBERS] = {
    {"shape", 0, SILO_CHECK_NONE},
    {"strides", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_ARRAY_LIST = {1, SILO_ARRAY_MEMBERS, SILO_ARRAY_NAMES};

/* The JSON members of a dynamic layout of an array; required members first. */
enum silo_passed_member {
    SILO_PASSED_AXES,
    SILO_PASSED_BITS,
    SILO_PASSED_MEMBERS
};
static const struct silo_member SILO_PASSED_NAMES[SILO_PASSED_MEMBERS] = {
    {"axes", 0, SILO_CHECK_NONE},
    {"bits", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_PASSED_LIST = {2, SILO_PASSED_MEMBERS, SILO_PASSED_NAMES};

/* The JSON members of a config; required members first. */
enum silo_config_member {
    SILO_CONFIG_VALUES,
    SILO_CONFIG_OPTIONS,
    SILO_CONFIG_MEMBERS
};
static const struct silo_member SILO_CONFIG_NAMES[SILO_CONFIG_MEMBERS] = {
    {"values", 0, SILO_CHECK_NONE},
    {"options", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_CONFIG_LIST = {2, SILO_CONFIG_MEMBERS, SILO_CONFIG_NAMES};

/* The JSON members of launch info (besides compilers' launch options); required members first. */
enum silo_launch_member {
    SILO_LAUNCH_ENTRY,
    SILO_LAUNCH_LAYOUT,
    SILO_LAUNCH_NUM_WARPS,
    SILO_LAUNCH_THREADS,
    SILO_LAUNCH_CLUSTER,
    SILO_LAUNCH_SHARED_BYTES,
    SILO_LAUNCH_SCRATCH_BYTES,
    SILO_LAUNCH_SCRATCH_ALIGN,
    SILO_LAUNCH_PROFILE_BYTES,
    SILO_LAUNCH_PROFILE_ALIGN,
    SILO_LAUNCH_COOPERATIVE,
    SILO_LAUNCH_PDL,
    SILO_LAUNCH_REGISTERS,
    SILO_LAUNCH_SPILLS,
    SILO_LAUNCH_BLOCK,
    SILO_LAUNCH_TENSOR_MAPS,
    SILO_LAUNCH_COUNTS_BLOCKS,
    SILO_LAUNCH_LOADER,
    SILO_LAUNCH_MEMBERS
};
enum {
    SILO_LAUNCH_LOADER_SINCE = 3,
};
static const struct silo_member SILO_LAUNCH_NAMES[SILO_LAUNCH_MEMBERS] = {
    {"entry", 0, SILO_CHECK_NONE},
    {"layout", 0, SILO_CHECK_NONE},
    {"num_warps", 0, SILO_CHECK_NONE},
    {"threads", 0, SILO_CHECK_NONE},
    {"cluster", 0, SILO_CHECK_NONE},
    {"shared_bytes", 0, SILO_CHECK_NONE},
    {"scratch_bytes", 0, SILO_CHECK_NONE},
    {"scratch_align", 0, SILO_CHECK_NONE},
    {"profile_bytes", 0, SILO_CHECK_NONE},
    {"profile_align", 0, SILO_CHECK_NONE},
    {"cooperative", 0, SILO_CHECK_NONE},
    {"pdl", 0, SILO_CHECK_NONE},
    {"registers", 0, SILO_CHECK_NONE},
    {"spills", 0, SILO_CHECK_NONE},
    {"block", 0, SILO_CHECK_NONE},
    {"tensor_maps", 0, SILO_CHECK_NONE},
    {"counts_blocks", 0, SILO_CHECK_NONE},
    {"loader", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_LAUNCH_LIST = {14, SILO_LAUNCH_MEMBERS, SILO_LAUNCH_NAMES};

/* The JSON members of a tensor map; required members first. */
enum silo_map_member {
    SILO_MAP_NAME,
    SILO_MAP_SWIZZLE,
    SILO_MAP_ELEMENT_BYTES,
    SILO_MAP_ELEMENT_TYPE,
    SILO_MAP_BOX,
    SILO_MAP_FP4_PADDED,
    SILO_MAP_AXES,
    SILO_MAP_MEMBERS
};
enum {
    SILO_MAP_AXES_SINCE = 3,
};
static const struct silo_member SILO_MAP_NAMES[SILO_MAP_MEMBERS] = {
    {"name", 0, SILO_CHECK_NONE},
    {"swizzle", 0, SILO_CHECK_NONE},
    {"element_bytes", 0, SILO_CHECK_NONE},
    {"element_type", 0, SILO_CHECK_NONE},
    {"box", 0, SILO_CHECK_NONE},
    {"fp4_padded", 0, SILO_CHECK_NONE},
    {"axes", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_MAP_LIST = {6, SILO_MAP_MEMBERS, SILO_MAP_NAMES};

/* The JSON members of dispatch rules; required members first. */
enum silo_dispatch_member {
    SILO_DISPATCH_KEY,
    SILO_DISPATCH_RULES,
    SILO_DISPATCH_FALLBACK,
    SILO_DISPATCH_UNSEEN,
    SILO_DISPATCH_OBJECTIVE,
    SILO_DISPATCH_MEMBERS
};
enum {
    SILO_DISPATCH_OBJECTIVE_SINCE = 9,
};
static const struct silo_member SILO_DISPATCH_NAMES[SILO_DISPATCH_MEMBERS] = {
    {"key", 0, SILO_CHECK_NONE},
    {"rules", 0, SILO_CHECK_NONE},
    {"fallback", 0, SILO_CHECK_NONE},
    {"unseen", 0, SILO_CHECK_NONE},
    {"objective", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_DISPATCH_LIST = {3, SILO_DISPATCH_MEMBERS, SILO_DISPATCH_NAMES};

/* The JSON members of a plan; required members first. */
enum silo_step_member {
    SILO_STEP_NAME,
    SILO_STEP_PARAMETERS,
    SILO_STEP_FORMS,
    SILO_STEP_MEMBERS
};
static const struct silo_member SILO_STEP_NAMES[SILO_STEP_MEMBERS] = {
    {"name", 0, SILO_CHECK_NONE},
    {"parameters", 0, SILO_CHECK_NONE},
    {"forms", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_STEP_LIST = {3, SILO_STEP_MEMBERS, SILO_STEP_NAMES};

/* The JSON members of a form (certain argument types) of a plan; required members first. */
enum silo_step_form_member {
    SILO_STEP_FORM_ARGUMENTS,
    SILO_STEP_FORM_LAUNCHES,
    SILO_STEP_FORM_HOLDS,
    SILO_STEP_FORM_MEMBERS
};
static const struct silo_member SILO_STEP_FORM_NAMES[SILO_STEP_FORM_MEMBERS] = {
    {"arguments", 0, SILO_CHECK_NONE},
    {"launches", 0, SILO_CHECK_NONE},
    {"holds", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_STEP_FORM_LIST = {2, SILO_STEP_FORM_MEMBERS, SILO_STEP_FORM_NAMES};

/* The JSON members of an argument of a plan; required members first. */
enum silo_step_argument_member {
    SILO_STEP_ARGUMENT_KIND,
    SILO_STEP_ARGUMENT_DTYPE,
    SILO_STEP_ARGUMENT_RANK,
    SILO_STEP_ARGUMENT_VALUE,
    SILO_STEP_ARGUMENT_MEMBERS
};
static const struct silo_member SILO_STEP_ARGUMENT_NAMES[SILO_STEP_ARGUMENT_MEMBERS] = {
    {"kind", 0, SILO_CHECK_NONE},
    {"dtype", 0, SILO_CHECK_NONE},
    {"rank", 0, SILO_CHECK_NONE},
    {"value", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_STEP_ARGUMENT_LIST = {1, SILO_STEP_ARGUMENT_MEMBERS, SILO_STEP_ARGUMENT_NAMES};

/* The JSON members of a launch of a plan; required members first. */
enum silo_step_launch_member {
    SILO_STEP_LAUNCH_KERNEL,
    SILO_STEP_LAUNCH_ARGUMENTS,
    SILO_STEP_LAUNCH_GRID,
    SILO_STEP_LAUNCH_OPTIONS,
    SILO_STEP_LAUNCH_MEMBERS
};
static const struct silo_member SILO_STEP_LAUNCH_NAMES[SILO_STEP_LAUNCH_MEMBERS] = {
    {"kernel", 0, SILO_CHECK_NONE},
    {"arguments", 0, SILO_CHECK_NONE},
    {"grid", 0, SILO_CHECK_NONE},
    {"options", 0, SILO_CHECK_NONE},
};
static const struct silo_member_list SILO_STEP_LAUNCH_LIST = {2, SILO_STEP_LAUNCH_MEMBERS, SILO_STEP_LAUNCH_NAMES};

/* clang-format on */

#endif
