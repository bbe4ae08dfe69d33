#include "manifest_launch.h"

#include "bundle_header.h"
#include "printable.h"

#include <stdlib.h>

enum {
    MAX_SLOTS = 16 * 1024,
    MAX_MAPS = 1024,
    MAX_RANK = 5,
    MAX_BOX = 1 << 20,
    MAX_SWIZZLE = 15,
    MAX_ELEMENT_TYPE = 31,
    MAX_CLUSTER = 1 << 16,
    MAX_ALIGN = 1 << 16,
    MAX_AXIS = 31,
};
static const int64_t MAX_COUNT = (INT64_C(1) << 31) - 1, MAX_BYTES = (INT64_C(1) << 48) - 1,
                     MAX_STRIDE = (INT64_C(1) << 40) - 1;

/* ---- layout ---- */

/* The same as silo.core.launch_info.AbiType. */
static const char *const TYPES[] = {
    "ptr",  "i1",   "i8",   "i16",  "i32",       "i64",     "u8",      "u16",    "u32",  "u64",
    "fp16", "bf16", "fp32", "fp64", "tensormap", "scratch", "profile", "struct", "empty"};

/* Whether a text contains no zero byte. */
static bool is_text(const struct silo_json *node) {
    return strlen(node->text) == node->count;
}

/* Whether a part is "shape.0" to "stride.4", "nan" or "tf32". */
static bool is_part(struct silo_string part) {
    if ((part.length == 3 && memcmp(part.data, "nan", 3) == 0) ||
        (part.length == 4 && memcmp(part.data, "tf32", 4) == 0))
        return true;
    const size_t end = part.length == 0 ? 0 : part.length - 1;
    return ((end == 6 && memcmp(part.data, "shape.", 6) == 0) ||
            (end == 7 && memcmp(part.data, "stride.", 7) == 0)) &&
           part.data[end] >= '0' && part.data[end] < '0' + MAX_RANK;
}

/* Whether a part is "member.OFFSET.SIZE", a member of a struct by value: only digits, and exactly
 * two points. */
static bool is_member(struct silo_string part) {
    uint32_t points = 0;
    if (part.length < 10 || part.length > 18 || memcmp(part.data, "member.", 7) != 0)
        return false;
    for (size_t i = 7; i < part.length; i++) {
        const bool point = part.data[i] == '.';
        points += point;
        if ((!point && (part.data[i] < '0' || part.data[i] > '9')) ||
            (point && (i == 7 || part.data[i - 1] == '.' || i + 1 == part.length)))
            return false;
    }
    return points == 1;
}

/* Decodes the members of a struct. */
static int decode_leaves(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_layout_slot *slot) {
    struct silo_struct_form *form = silo_decoding_array(decoding, 1, sizeof *form);
    if (form == NULL || silo_need_items(decoding, field, node, SILO_MAX_LEAVES) != 0)
        return -1;
    bool good = node->count > 0;
    for (uint32_t i = 0; good && i < node->count; i++) {
        const struct silo_json *leaf = &node->items[i];
        good = leaf->type == SILO_JSON_LIST && leaf->count == 2 &&
               leaf->items[0].type == SILO_JSON_TEXT && leaf->items[1].type == SILO_JSON_TEXT &&
               is_text(&leaf->items[0]) && is_text(&leaf->items[1]) &&
               silo_struct_add(form, leaf->items[0].text, leaf->items[1].text, NULL) == 0;
    }
    if (!good)
        return silo_refuse(decoding, field, "not a struct of an array");
    slot->form = form;
    return silo_need_minor(decoding, field, SILO_LAYOUTS_MINOR, "structs");
}

static int decode_slot(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_layout_slot *slot) {
    if (node->type != SILO_JSON_LIST || (node->count != 2 && node->count != 3))
        return silo_refuse(decoding, field, "not a parameter layout");
    slot->part = (struct silo_string){"", 0};
    uint8_t type;
    const bool is_struct = silo_json_is(&node->items[1], "struct");
    if (silo_need_text(decoding, field, &node->items[0], &slot->name) != 0 ||
        silo_need_text(decoding, field, &node->items[1], &slot->type) != 0)
        return -1;
    if (is_struct)
        return node->count == 3 ? decode_leaves(decoding, field, &node->items[2], slot)
                                : silo_refuse(decoding, field, "not a parameter layout");
    if ((node->count == 3 && silo_need_text(decoding, field, &node->items[2], &slot->part) != 0) ||
        silo_need_word(decoding, field, &node->items[1], TYPES, sizeof TYPES / sizeof *TYPES,
                       "an ABI type", &type) != 0)
        return -1;
    if (node->count == 3 && is_member(slot->part))
        return silo_need_minor(decoding, field, SILO_MEMBERS_MINOR, "structs by value");
    if (node->count == 3 && !is_part(slot->part))
        return silo_refuse(decoding, field, "not a parameter layout");
    if (silo_json_is(&node->items[1], "empty"))
        return silo_need_minor(decoding, field, SILO_LAYOUTS_MINOR, "structs");
    return 0;
}

static int decode_layout(const struct silo_decoding *decoding, const struct silo_field *field,
                         const struct silo_json *node, struct silo_launch_info *launch) {
    if (silo_need_items(decoding, field, node, MAX_SLOTS) != 0)
        return -1;
    struct silo_layout_slot *slots = silo_decoding_array(decoding, node->count, sizeof *slots);
    if (slots == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        if (decode_slot(decoding, field, &node->items[i], &slots[i]) != 0)
            return -1;
    }
    launch->layout = slots;
    launch->slot_count = node->count;
    return 0;
}

/* ---- tensor maps ---- */

static int decode_axis(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_map_axis *axis) {
    if (node->type != SILO_JSON_LIST)
        return silo_need_integer(decoding, field, node, 0, MAX_AXIS, &axis->axis);
    axis->axis = -1;
    if (node->count != 2)
        return silo_refuse(decoding, field, "not the axes of a tensor map");
    return silo_need_integer(decoding, field, &node->items[0], 1, MAX_COUNT, &axis->extent) != 0
               ? -1
               : silo_need_integer(decoding, field, &node->items[1], 0, MAX_STRIDE, &axis->stride);
}

/* Decodes the axes of an array's map, whose rank is decoded already. */
static int decode_axes(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_tensor_map_info *map) {
    if (silo_need_items(decoding, field, node, MAX_RANK) != 0)
        return -1;
    if (silo_need_minor(decoding, field, SILO_MAP_AXES_SINCE, "axes") != 0)
        return -1;
    if (node->count != map->rank)
        return silo_refuse(decoding, field, "not the axes of a tensor map");
    struct silo_map_axis *axes = silo_decoding_array(decoding, map->rank, sizeof *axes);
    if (axes == NULL)
        return -1;
    for (uint32_t i = 0; i < map->rank; i++) {
        if (decode_axis(decoding, field, &node->items[i], &axes[i]) != 0)
            return -1;
    }
    map->axes = axes;
    return 0;
}

static int decode_map(const struct silo_decoding *decoding, const struct silo_field *field,
                      const struct silo_json *node, struct silo_tensor_map_info *map) {
    const struct silo_json *members[SILO_MAP_MEMBERS];
    int64_t swizzle, bytes, type;
    if (silo_need_members(decoding, field, node, &SILO_MAP_LIST, members) != 0 ||
        silo_need_text(decoding, field, members[SILO_MAP_NAME], &map->name) != 0 ||
        silo_need_integer(decoding, field, members[SILO_MAP_SWIZZLE], 0, MAX_SWIZZLE, &swizzle) !=
            0 ||
        silo_need_integer(decoding, field, members[SILO_MAP_ELEMENT_BYTES], 1, 8, &bytes) != 0 ||
        silo_need_integer(decoding, field, members[SILO_MAP_ELEMENT_TYPE], 0, MAX_ELEMENT_TYPE,
                          &type) != 0 ||
        silo_need_items(decoding, field, members[SILO_MAP_BOX], MAX_RANK) != 0 ||
        silo_need_bool(decoding, field, members[SILO_MAP_FP4_PADDED], &map->fp4_padded) != 0)
        return -1;
    if ((bytes & (bytes - 1)) != 0 || members[SILO_MAP_BOX]->count == 0)
        return silo_refuse(decoding, field, "not a tensor map");
    map->swizzle = (int32_t)swizzle;
    map->element_type = (int32_t)type;
    map->element_bytes = (uint32_t)bytes;
    map->rank = members[SILO_MAP_BOX]->count;
    int64_t *box = silo_decoding_array(decoding, map->rank, sizeof *box);
    if (box == NULL)
        return -1;
    for (uint32_t i = 0; i < map->rank; i++) {
        if (silo_need_integer(decoding, field, &members[SILO_MAP_BOX]->items[i], 1, MAX_BOX,
                              &box[i]) != 0)
            return -1;
    }
    map->box = box;
    return members[SILO_MAP_AXES] == NULL
               ? 0
               : decode_axes(decoding, field, members[SILO_MAP_AXES], map);
}

static int decode_maps(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_launch_info *launch) {
    if (silo_need_items(decoding, field, node, MAX_MAPS) != 0)
        return -1;
    if (node->count == 0)
        /* an empty list must be left out */
        return silo_refuse(decoding, field, "not launch info: no tensor maps");
    struct silo_tensor_map_info *maps = silo_decoding_array(decoding, node->count, sizeof *maps);
    if (maps == NULL)
        return -1;
    for (uint32_t i = 0; i < node->count; i++) {
        if (decode_map(decoding, field, &node->items[i], &maps[i]) != 0)
            return -1;
    }
    launch->maps = maps;
    launch->map_count = node->count;
    return 0;
}

/* ---- launch info ---- */

static int option_order(const void *left, const void *right) {
    const struct silo_launch_option *a = left, *b = right;
    return silo_text_order(&a->name, &b->name);
}

/* Separates the members of launch info from options of compilers. */
static int split(const struct silo_decoding *decoding, const struct silo_field *field,
                 const struct silo_json *node, const struct silo_json *members[SILO_LAUNCH_MEMBERS],
                 struct silo_launch_info *launch) {
    memset(members, 0, SILO_LAUNCH_MEMBERS * sizeof *members);
    if (node->type != SILO_JSON_OBJECT)
        return silo_refuse(decoding, field, "not launch info");
    uint32_t options = 0;
    struct silo_launch_option *entries = NULL;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct silo_json *name = &node->items[2 * i], *value = name + 1;
        int member = 0;
        while (member < SILO_LAUNCH_MEMBERS && !silo_json_is(name, SILO_LAUNCH_NAMES[member].name))
            member++;
        if (member < SILO_LAUNCH_MEMBERS) {
            members[member] = value;
            continue;
        }
        if (!silo_known_launch_option(decoding->known, name->text, name->count))
            return silo_refuse(decoding, field, "not launch info: no compiler here knows %s",
                               name->text);
        if (entries == NULL) {
            entries = silo_decoding_array(decoding, node->count, sizeof *entries);
            if (entries == NULL)
                return -1;
        }
        entries[options].name = (struct silo_string){name->text, name->count};
        if (silo_need_integer(decoding, field, value, 1, MAX_COUNT, &entries[options++].value) != 0)
            return -1;
    }
    for (int i = 0; i < SILO_LAUNCH_LIST.required; i++) {
        if (members[i] == NULL)
            return silo_refuse(decoding, field, "not launch info: %s is missing",
                               SILO_LAUNCH_NAMES[i].name);
    }
    if (options > 1)
        qsort(entries, options, sizeof *entries, option_order);
    launch->options = entries;
    launch->option_count = options;
    return 0;
}

/* Decodes three sizes of at least 1. */
static int decode_sizes(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, int64_t most, const char *noun,
                        int64_t sizes[3]) {
    if (node->type != SILO_JSON_LIST || node->count != 3)
        return silo_refuse(decoding, field, "not %s", noun);
    for (uint32_t i = 0; i < 3; i++) {
        if (silo_need_integer(decoding, field, &node->items[i], 1, most, &sizes[i]) != 0)
            return -1;
    }
    return 0;
}

static int decode_block(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, struct silo_launch_info *launch) {
    int64_t *block = launch->block;
    if (node == NULL) {
        block[0] = launch->threads;
        block[1] = block[2] = 1;
        return 0;
    }
    if (decode_sizes(decoding, field, node, MAX_COUNT, "a block", block) != 0)
        return -1;
    /* `plane` is below 2^62, and the second product is computed only if `plane` is at most
     * MAX_COUNT: neither overflows. */
    const int64_t plane = block[0] * block[1];
    if (plane > MAX_COUNT || plane * block[2] != launch->threads)
        return silo_refuse(decoding, field, "a block of %lld x %lld x %lld threads has not %lld",
                           (long long)block[0], (long long)block[1], (long long)block[2],
                           (long long)launch->threads);
    /* A one-dimensional block must be left out, because `threads` states its size. */
    if (block[1] == 1 && block[2] == 1)
        return silo_refuse(decoding, field, "not launch info: a block of one dimension");
    return 0;
}

/* Checks a count that may be null, which means unknown. */
static int check_optional(const struct silo_decoding *decoding, const struct silo_field *field,
                          const struct silo_json *node) {
    int64_t unused;
    return node->type == SILO_JSON_NULL
               ? 0
               : silo_need_integer(decoding, field, node, 0, MAX_COUNT, &unused);
}

static int decode_align(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node, int64_t *align) {
    if (silo_need_integer(decoding, field, node, 1, MAX_ALIGN, align) != 0)
        return -1;
    if ((*align & (*align - 1)) != 0)
        return silo_refuse(decoding, field, "not a power of two up to %d: %lld", MAX_ALIGN,
                           (long long)*align);
    return 0;
}

/* Decodes `counts_blocks`. The file must leave this member out if its value is false or if the
 * cluster is a single block, because the member would have no effect then. */
static int decode_counts_blocks(const struct silo_decoding *decoding,
                                const struct silo_field *field, const struct silo_json *node,
                                struct silo_launch_info *launch) {
    const int64_t *cluster = launch->cluster;
    launch->counts_blocks = node != NULL;
    return node == NULL || (node->type == SILO_JSON_BOOL && node->integer != 0 &&
                            (cluster[0] != 1 || cluster[1] != 1 || cluster[2] != 1))
               ? 0
               : silo_refuse(decoding, field, "not launch info: counts_blocks");
}

/* Checks the member that names a loader for libraries. The value is not used, because libsilo has
 * no such loaders. */
static int check_loader(const struct silo_decoding *decoding, const struct silo_field *field,
                        const struct silo_json *node) {
    struct silo_string text;
    if (node == NULL)
        return 0;
    if (silo_need_text(decoding, field, node, &text) != 0)
        return -1;
    return text.length != 0
               ? silo_need_minor(decoding, field, SILO_LAUNCH_LOADER_SINCE, "a loader's text")
               : silo_refuse(decoding, field, "not launch info: loader");
}

int silo_decode_launch(const struct silo_decoding *decoding, const struct silo_field *field,
                       const struct silo_json *node, struct silo_launch_info *launch) {
    const struct silo_json *members[SILO_LAUNCH_MEMBERS];
    if (split(decoding, field, node, members, launch) != 0 ||
        decode_layout(decoding, field, members[SILO_LAUNCH_LAYOUT], launch) != 0 ||
        (members[SILO_LAUNCH_TENSOR_MAPS] != NULL &&
         decode_maps(decoding, field, members[SILO_LAUNCH_TENSOR_MAPS], launch) != 0) ||
        silo_need_text(decoding, field, members[SILO_LAUNCH_ENTRY], &launch->entry) != 0)
        return -1;
    if (launch->entry.length == 0 || !silo_printable(launch->entry.data, launch->entry.length))
        return silo_refuse(decoding, field, "not an entry symbol");
    const struct {
        int member;
        int64_t most, *to;
    } counts[] = {
        {SILO_LAUNCH_NUM_WARPS, MAX_COUNT, &launch->num_warps},
        {SILO_LAUNCH_THREADS, MAX_COUNT, &launch->threads},
        {SILO_LAUNCH_SHARED_BYTES, MAX_COUNT, &launch->shared_bytes},
        {SILO_LAUNCH_SCRATCH_BYTES, MAX_BYTES, &launch->scratch_bytes},
        {SILO_LAUNCH_PROFILE_BYTES, MAX_BYTES, &launch->profile_bytes},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (silo_need_integer(decoding, field, members[counts[i].member], 0, counts[i].most,
                              counts[i].to) != 0)
            return -1;
    }
    if (decode_align(decoding, field, members[SILO_LAUNCH_SCRATCH_ALIGN], &launch->scratch_align) !=
            0 ||
        decode_align(decoding, field, members[SILO_LAUNCH_PROFILE_ALIGN], &launch->profile_align) !=
            0 ||
        silo_need_bool(decoding, field, members[SILO_LAUNCH_COOPERATIVE], &launch->cooperative) !=
            0 ||
        silo_need_bool(decoding, field, members[SILO_LAUNCH_PDL], &launch->pdl) != 0 ||
        check_optional(decoding, field, members[SILO_LAUNCH_REGISTERS]) != 0 ||
        check_optional(decoding, field, members[SILO_LAUNCH_SPILLS]) != 0 ||
        decode_sizes(decoding, field, members[SILO_LAUNCH_CLUSTER], MAX_CLUSTER, "a cluster",
                     launch->cluster) != 0)
        return -1;
    return check_loader(decoding, field, members[SILO_LAUNCH_LOADER]) != 0 ||
                   decode_counts_blocks(decoding, field, members[SILO_LAUNCH_COUNTS_BLOCKS],
                                        launch) != 0
               ? -1
               : decode_block(decoding, field, members[SILO_LAUNCH_BLOCK], launch);
}
