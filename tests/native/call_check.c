/* What a call is made of, without Python: words, grids, packing, layouts, shapes, descriptors and
 * tensor maps. For the sanitizers. */
#include "argument_word.h"
#include "extents.h"
#include "grid.h"
#include "layout.h"
#include "packing.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, error.text);    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static silo_error error;

static bool says(const char *text) {
    const bool right = strcmp(error.text, text) == 0;
    if (!right)
        fprintf(stderr, "wanted: %s\n", text);
    return right;
}

/* ---- words ---- */

static void words(void) {
    const unsigned special = SILO_PARAMETER_SPECIALIZE | SILO_PARAMETER_ALIGN;
    const struct silo_parameter any = {.kind = SILO_PARAMETER_ANY, .flags = (uint8_t)special},
                                byte = {.kind = SILO_PARAMETER_INT, .type = {SILO_UINT, 8}},
                                wide = {.kind = SILO_PARAMETER_INT, .type = {SILO_UINT, 64}},
                                key = {.kind = SILO_PARAMETER_ANY, .flags = SILO_PARAMETER_KEY},
                                exact = {.kind = SILO_PARAMETER_ANY, .flags = SILO_PARAMETER_EXACT};
    uint64_t word = silo_integer_word(&any, 32);
    CHECK(word == SILO_CODE(SILO_VALUE_INT, SILO_INT, 32, SILO_FLAG_DIVISIBLE16));
    CHECK(silo_code_bits(silo_integer_word(&any, INT64_C(1) << 31)) == 64);
    CHECK(silo_code_flags(silo_integer_word(&any, 1)) == SILO_FLAG_EQUAL1);
    CHECK(silo_code_bits(silo_integer_word(&byte, 255)) == 8);
    CHECK(silo_integer_word(&byte, 256) == 0 && silo_integer_word(&byte, -1) == 0);
    word = silo_wide_word(&wide, UINT64_MAX);
    CHECK(word != 0 && !silo_code_is_integer(word, UINT64_MAX));
    CHECK(silo_wide_word(&byte, UINT64_MAX) == 0);
    CHECK(silo_key_word(&key, word, UINT64_MAX) == (uint64_t)INT64_MAX);
    word = silo_integer_word(&any, 1000);
    CHECK(silo_key_word(&key, word, 1000) == 1024 && silo_key_word(&exact, word, 1000) == 1000);
    CHECK(silo_address_flags(&any, 64, 32) == SILO_FLAG_ALIGNED16);
    CHECK(silo_address_flags(&any, 8, 64) == 0 && silo_address_flags(&any, 8, 128) == 0);
    CHECK(silo_address_flags(&any, 9, 8) == 0 && silo_address_flags(&any, 9, 0) == 0);
    CHECK(silo_address_flags(&any, 9, 16) == SILO_FLAG_OFF_ELEMENT);
    CHECK(silo_address_flags(&any, 4, 64) == SILO_FLAG_OFF_ELEMENT);
    char room[160];
    CHECK(strcmp(silo_parameter_noun(&byte, room, sizeof room), "uint8 in [0, 255]") == 0);
}

/* ---- shapes and extents ---- */

static void shapes(void) {
    const int64_t sizes[3] = {4, 5, 6}, strides[3] = {30, 6, 1}, huge[2] = {INT64_MAX, INT64_MAX},
                  lowest[2] = {INT64_MIN, INT64_MIN};
    int64_t compact[3];
    silo_shape_compact(sizes, 3, compact);
    CHECK(memcmp(compact, strides, sizeof strides) == 0);
    CHECK(silo_shape_check(sizes, strides, 3, 4, &error) == 0);
    CHECK(silo_shape_check(huge, NULL, 2, 4, &error) != 0 && error.code == SILO_ERROR_SHAPE);
    CHECK(says("its extents and strides reach beyond any memory"));
    CHECK(silo_shape_check(huge, lowest, 2, 4, NULL) != 0);
    CHECK(silo_shape_in_range32(sizes, strides, 3, 4) &&
          !silo_shape_in_range32(huge, strides, 2, 1));
    CHECK(!silo_shape_in_range32(sizes, lowest, 2, 1) &&
          !silo_shape_in_range32(sizes, strides, 3, 0));
    struct dl_tensor tensor = {.ndim = 33};
    struct silo_shape shape;
    CHECK(silo_shape_of_dlpack(&tensor, &shape, &error) != 0);
    CHECK(says("the array has 33 dimensions; there are 0 to 32"));
    tensor = (struct dl_tensor){.ndim = 2, .dtype = {SILO_FLOAT, 32, 1}};
    CHECK(silo_shape_of_dlpack(&tensor, &shape, &error) != 0);
    tensor.shape = (int64_t *)(uintptr_t)sizes;
    CHECK(silo_shape_of_dlpack(&tensor, &shape, &error) == 0 && shape.strides[0] == 5);
    uint64_t found[SILO_GRID_WORDS + 1 + 2 * SILO_MAX_AXES];
    CHECK(silo_extent_words_of_grid(NULL, found) == 1 && found[0] == 0);
    CHECK(silo_extent_words_of_grid(sizes, found) == 4 && found[0] == 1 && found[3] == 6);
    const uint32_t count = silo_extent_words_of_array(SILO_EXTENT_LAYOUT, 3, sizes, strides, found);
    CHECK(count == 7 && found[6] == 1 && silo_extent_words_at(SILO_EXTENT_LAYOUT, found) == 7);
    CHECK(silo_extent_words_of_array(SILO_EXTENT_SHAPE, 3, sizes, NULL, found) == 4);
    CHECK(count <= silo_extent_room(SILO_EXTENT_LAYOUT));
}

/* ---- grids ---- */

static void add(struct silo_grid_programs *grid, silo_instruction one) {
    CHECK(silo_grid_add_axis(grid, &one, sizeof one, &error) == 0);
}

static void usual_grid(void) {
    struct silo_grid_programs grid = {0};
    struct silo_grid_fault fault;
    int64_t dims[3], other[3];
    add(&grid, (silo_instruction){SILO_OP_CDIV_ARGUMENT, 1, 128});
    add(&grid, (silo_instruction){SILO_OP_CDIV_ARGUMENT, 0, 3});
    add(&grid, (silo_instruction){SILO_OP_CONST, 0, 5});
    CHECK(grid.usual && grid.values_used == 2 && grid.arrays_used == 0);
    CHECK(silo_grid_add_axis(&grid, dims, sizeof(silo_instruction), &error) != 0);
    const struct silo_parameter any = {.kind = SILO_PARAMETER_ANY};
    for (int64_t n = 0; n < 1000; n++) {
        const uint64_t slots[2] = {(uint64_t)n, (uint64_t)(n * 77)};
        const uint64_t codes[2] = {silo_integer_word(&any, n), silo_integer_word(&any, n * 77)};
        const silo_bindings bindings = {.slot_count = 2, .values = (const int64_t *)slots};
        CHECK(silo_grid_check_values(&grid, 2, slots, codes, &fault) == 0);
        CHECK(silo_grid_evaluate(&grid, &bindings, dims, &fault) == 0);
        CHECK(silo_grid_usual(&grid, 2, slots, codes, other));
        CHECK(memcmp(dims, other, sizeof dims) == 0 && dims[2] == 5);
        CHECK(dims[0] == (n * 77 + 127) / 128 && dims[1] == (n + 2) / 3);
    }
    const uint64_t slots[2] = {0, 0},
                   codes[2] = {SILO_CODE(SILO_VALUE_INT, SILO_INT, 32, 0), silo_float_word(&any)};
    CHECK(!silo_grid_usual(&grid, 2, slots, codes, dims));
    CHECK(!silo_grid_usual(&grid, 1, slots, codes, dims));
    CHECK(silo_grid_check_values(&grid, 2, slots, codes, &fault) != 0 && fault.slot == 1);
    CHECK(silo_grid_refuse(&fault, "k", dims, "n", &error) != 0 && error.code == SILO_ERROR_KIND);
    CHECK(says("k: argument 'n' needs a signed 64-bit integer, for the declared grid reads it"));
    CHECK(silo_grid_check_values(&grid, 1, slots, codes, &fault) != 0);
    CHECK(silo_grid_refuse(&fault, "k", dims, "", &error) != 0);
    CHECK(says("k: the declared grid has no dimension x for these arguments: it reads an argument "
               "that is not an array"));
    silo_grid_clear(&grid);
    silo_grid_clear(&grid);
}

static void other_grids(void) {
    struct silo_grid_programs grid = {0};
    struct silo_grid_fault fault;
    int64_t dims[3];
    const silo_instruction extent = {SILO_OP_EXTENT, 1, 0}, strange = {SILO_OP_ARGUMENT, 256, 0},
                           negative = {SILO_OP_CONST, 0, -1};
    CHECK(silo_grid_add_axis(&grid, &extent, 15, &error) != 0);
    CHECK(says("15 bytes are not a grid program"));
    CHECK(silo_grid_add_axis(&grid, &strange, sizeof strange, &error) != 0);
    CHECK(says("a grid program names parameter 256") && grid.axes == 0);
    add(&grid, extent);
    CHECK(!grid.usual && grid.arrays_used == 1 && grid.arrays[0] == 1);
    const int64_t shape[1] = {9}, *shapes[2] = {NULL, shape};
    const int32_t ndims[2] = {0, 1};
    const uint64_t slots[2] = {0, 0};
    const silo_bindings bindings = {.slot_count = 2,
                                    .values = (const int64_t *)slots,
                                    .shapes = shapes,
                                    .strides = shapes,
                                    .ndims = ndims,
                                    .itemsizes = ndims};
    CHECK(silo_grid_evaluate(&grid, &bindings, dims, &fault) == 0 && dims[0] == 9 && dims[1] == 1);
    add(&grid, negative);
    CHECK(silo_grid_evaluate(&grid, &bindings, dims, &fault) != 0);
    CHECK(silo_grid_refuse(&fault, "k", dims, "", &error) != 0 && error.code == SILO_ERROR_GRID);
    CHECK(says("k: the declared grid gives -1 as dimension y for these arguments"));
    silo_grid_clear(&grid);
    struct silo_function function = {.grid_limit = {UINT32_MAX, 65535, 65535}};
    const int64_t empty[3] = {5, 0, 99999}, large[3] = {1, 65536, 1},
                  endless[3] = {UINT32_MAX, 65535, 65535}, right[3] = {UINT32_MAX, 1, 1};
    CHECK(silo_grid_check(&function, empty) == SILO_GRID_EMPTY);
    CHECK(silo_grid_check(&function, right) == SILO_GRID_FITS);
    CHECK(silo_grid_check(&function, large) == SILO_GRID_REFUSED);
    fault = silo_grid_limits(&function, large);
    CHECK(silo_grid_refuse(&fault, "k", large, "", &error) != 0 && error.code == SILO_ERROR_GRID);
    CHECK(says("k: grid (1, 65536, 1): dimension y is limited to 65535 on this device"));
    CHECK(silo_grid_check(&function, endless) == SILO_GRID_REFUSED);
    fault = silo_grid_limits(&function, endless);
    CHECK(silo_grid_refuse(&fault, "k", endless, "", &error) != 0);
    CHECK(strstr(error.text, "has more than 2^53 programs, which no launch ends") != NULL);
}

/* ---- packing ---- */

static void *no_map(void *context, int32_t slot, const struct silo_map_form *form) {
    (void)form;
    *(int32_t *)context = slot;
    return NULL;
}

static void packing(void) {
    struct silo_packing packing;
    struct silo_function function = {.scratch_bytes = 8};
    const struct silo_map_form form = {
        .element_type = 7, .element_bytes = 4, .rank = 2, .box = {8, 4}};
    const struct silo_layout_item items[] = {
        {.type = "ptr", .slot = 0, .writes = true},
        {.type = "i32", .slot = 1},
        {.type = "fp32", .slot = 2},
        {.type = "fp16", .slot = 3},
        {.type = "bf16", .slot = 4},
        {.type = "scratch"},
        {.type = "i64", .slot = 5, .part = "stride.1", .rank = 2},
        {.type = "tensormap", .slot = 5, .map = &form},
    };
    const size_t count = sizeof items / sizeof *items;
    int32_t wrong, where = -1;
    CHECK(silo_packing_init(&packing, items, count, &function, &wrong, &error) == 0);
    CHECK(packing.count == count && !packing.takes_scratch); /* a CPU's lies on the stack */
    silo_packing_clear(&packing);
    struct silo_gpu_device *const some =
        (struct silo_gpu_device *)&form; /* only whether there is */
    function.device = some;
    CHECK(silo_packing_init(&packing, items, count, &function, &wrong, &error) == 0);
    CHECK(packing.takes_scratch);
    struct silo_descriptor descriptor = {
        .address = 64, .shape = {3, 4}, .strides = {4, 1}, .rank = 2};
    uint64_t room[7] = {0}, *slots = room + 1, scratch[2] = {4096, 0};
    const double real = 1.5;
    slots[0] = 128;
    slots[1] = 7;
    for (int i = 2; i < 5; i++)
        memcpy(&slots[i], &real, sizeof real);
    const struct silo_values values = {slots, scratch, &descriptor, NULL};
    void *params[8];
    CHECK(silo_pack(&packing, &values, params, no_map, &where) == 7 && where == 5);
    float narrow;
    memcpy(&narrow, params[2], sizeof narrow);
    CHECK(params[0] == &slots[0] && params[1] == &slots[1] && narrow == 1.5F);
    CHECK(*(uint16_t *)params[3] == 0x3e00 && *(uint16_t *)params[4] == 0x3fc0);
    CHECK(params[5] == &scratch[0] && *(int64_t *)params[6] == 1);
    descriptor.rank = 3;
    CHECK(silo_pack(&packing, &values, params, no_map, &where) == 6);
    CHECK(silo_pack_refuse(&packing, &values, 6, "k", "x", &error) != 0);
    CHECK(says("k: the tensor descriptor 'x' has 3 dimensions; this code takes one of 2"));

    uint64_t codes[6] = {SILO_CODE(SILO_VALUE_POINTER, SILO_FLOAT, 32, SILO_FLAG_READONLY),
                         SILO_CODE(SILO_VALUE_INT, SILO_INT, 64, 0)};
    char text[64];
    const char *wanted;
    CHECK(silo_packing_check(&packing, codes, 6, text, sizeof text, &where, &wanted) != 0);
    CHECK(where == 0 && strstr(wanted, "a writable array") != NULL);
    codes[0] = SILO_CODE(SILO_VALUE_POINTER, SILO_FLOAT, 32, 0);
    CHECK(silo_packing_check(&packing, codes, 6, text, sizeof text, &where, &wanted) != 0);
    CHECK(where == 1 && strcmp(wanted, "an int32") == 0);
    CHECK(silo_packing_check(&packing, codes, 1, text, sizeof text, &where, &wanted) != 0);
    CHECK(where == 1 && wanted == NULL);
    silo_packing_clear(&packing);
    silo_packing_clear(&packing);
}

static void bad_packing(const struct silo_layout_item *items, size_t count, int32_t at,
                        const char *text) {
    struct silo_packing packing;
    const struct silo_function function = {0};
    int32_t wrong;
    CHECK(silo_packing_init(&packing, items, count, &function, &wrong, &error) != 0);
    CHECK(wrong == at && error.code == SILO_ERROR_UNSUPPORTED && says(text));
    silo_packing_clear(&packing);
}

static void bad_packings(void) {
    const struct silo_map_form form = {.element_bytes = 4, .rank = 1, .box = {4}},
                               flat = {.rank = 0};
    static struct silo_layout_item many[SILO_MAX_PARAMETERS + 1];
    for (int32_t i = 0; i <= SILO_MAX_PARAMETERS; i++)
        many[i] = (struct silo_layout_item){.type = "tensormap", .slot = i, .map = &form};
    bad_packing(many, SILO_MAX_PARAMETERS + 1, -1, "a binary with too many parameters");
    bad_packing(many, SILO_MAX_DESCRIPTORS + 1, -1, "a binary with too many tensor maps");
    many[1].slot = 0;
    bad_packing(many, 2, 1, "two tensor maps of one parameter");
    many[1] = (struct silo_layout_item){.type = "i128"};
    bad_packing(many, 2, 1, "not a parameter of a kernel's binary");
    many[1] = (struct silo_layout_item){.type = "i32", .slot = SILO_MAX_PARAMETERS};
    bad_packing(many, 2, 1, "not a parameter of a kernel's binary");
    many[1] = (struct silo_layout_item){.type = "i64", .part = "shape.1", .rank = 1};
    bad_packing(many, 2, 1, "not a part of a tensor descriptor");
    many[1] = (struct silo_layout_item){.type = "i64", .part = "shape", .rank = 1};
    bad_packing(many, 2, 1, "not a part of a tensor descriptor");
    many[1] = (struct silo_layout_item){.type = "tensormap", .slot = 1, .map = &flat};
    bad_packing(many, 2, 1, "not a tensor map");
    struct silo_map_form array = form;
    array.of_array = 1;
    for (int i = 0; i < 3; i++)
        many[i] = (struct silo_layout_item){.type = "tensormap", .slot = 4, .map = &array};
    bad_packing(many, 3, 2, "three tensor maps of one array");
    array.axes[0] = SILO_MAX_AXES;
    bad_packing(many, 1, 0, "not a tensor map");
    array.axes[0] = -2;
    bad_packing(many, 1, 0, "not a tensor map");
}

/* An array's map takes arrays alone, which have a shape. */
static void array_packings(void) {
    const struct silo_map_form form = {.element_type = 7,
                                       .element_bytes = 4,
                                       .rank = 2,
                                       .box = {8, 4},
                                       .of_array = 1,
                                       .axes = {0, 1}};
    const struct silo_layout_item items[] = {
        {.type = "tensormap", .slot = 0, .map = &form, .writes = true},
        {.type = "tensormap", .slot = 0, .map = &form},
    };
    const struct silo_function function = {0};
    struct silo_packing packing;
    int32_t wrong, where = -1;
    CHECK(silo_packing_init(&packing, items, 2, &function, &wrong, &error) == 0);
    uint64_t room[2] = {0, 4096};
    const struct silo_values values = {room + 1, NULL, NULL, NULL};
    void *params[2];
    CHECK(silo_pack(&packing, &values, params, no_map, &where) == 0 && where == 0);
    char text[64];
    const char *wanted;
    uint64_t code = SILO_CODE(SILO_VALUE_POINTER, SILO_FLOAT, 32, 0);
    CHECK(silo_packing_check(&packing, &code, 1, text, sizeof text, &where, &wanted) == 0);
    code |= SILO_FLAG_READONLY;
    CHECK(silo_packing_check(&packing, &code, 1, text, sizeof text, &where, &wanted) != 0);
    CHECK(strstr(wanted, "a writable array") != NULL);
    static const unsigned others[] = {SILO_VALUE_ADDRESS, SILO_VALUE_NONE, SILO_VALUE_DESCRIPTOR};
    for (int i = 0; i < 3; i++) {
        code = SILO_CODE(others[i], 0, 0, 0);
        CHECK(silo_packing_check(&packing, &code, 1, text, sizeof text, &where, &wanted) != 0);
        CHECK(strcmp(wanted, "an array") == 0);
    }
    silo_packing_clear(&packing);
}

/* ---- a bundle's layout ---- */

#define TEXT(text) {text, sizeof text - 1}

static const struct silo_signature_parameter parameters[] = {
    {.name = TEXT("x"), .kind = SILO_PARAMETER_DESCRIPTOR, .effect = SILO_EFFECT_BOTH},
    {.name = TEXT("n"), .kind = SILO_PARAMETER_INT},
    {.name = TEXT("B"), .kind = SILO_PARAMETER_CONSTEXPR},
    {.name = TEXT("y"), .kind = SILO_PARAMETER_POINTER, .effect = SILO_EFFECT_WRITE},
};
static const struct silo_signature signature = {4, parameters};
static const int64_t box[2] = {16, 4};

static int pack(struct silo_packing *packing, const struct silo_layout_slot *slots, uint32_t count,
                const struct silo_tensor_map_info *map) {
    const struct silo_launch_info launch = {
        .slot_count = count, .layout = slots, .map_count = map != NULL, .maps = map};
    const struct silo_variant variant = {
        .signature = &signature, .launch = &launch, .kernel = TEXT("k")};
    const struct silo_function function = {0};
    return silo_layout_pack(packing, &variant, &signature, &function, &error);
}

static void layouts(void) {
    struct silo_packing packing;
    struct silo_tensor_map_info map = {
        .name = TEXT("x"), .element_type = 7, .element_bytes = 4, .rank = 2, .box = box};
    struct silo_layout_slot slots[] = {
        {TEXT("x"), TEXT("tensormap"), TEXT(""), NULL},
        {TEXT("x"), TEXT("i32"), TEXT("shape.0"), NULL},
        {TEXT("x"), TEXT("i32"), TEXT("shape.1"), NULL},
        {TEXT("y"), TEXT("ptr"), TEXT(""), NULL},
        {TEXT("n"), TEXT("i32"), TEXT(""), NULL},
        {TEXT(""), TEXT("scratch"), TEXT(""), NULL},
    };
    CHECK(pack(&packing, slots, 6, &map) == 0 && packing.count == 6);
    CHECK(packing.packed[0].part == SILO_PART_MAP && packing.packed[0].writes);
    CHECK(packing.packed[2].axis == 1 && packing.packed[2].rank == 2 && !packing.packed[2].writes);
    CHECK(packing.packed[3].slot == 3 && packing.packed[3].writes);
    CHECK(packing.packed[4].slot == 1 && packing.packed[4].bits == 32);
    CHECK(packing.packed[5].slot == SILO_SLOT_NULL);
    silo_packing_clear(&packing);
    /* Taken apart: the base is a pointer without a part. */
    slots[0] = (struct silo_layout_slot){TEXT("x"), TEXT("ptr"), TEXT(""), NULL};
    CHECK(pack(&packing, slots, 6, NULL) == 0 && packing.packed[0].part == SILO_PART_BASE);
    CHECK(packing.packed[0].rank == 2 && packing.packed[0].writes);
    silo_packing_clear(&packing);
    slots[0] = (struct silo_layout_slot){TEXT("x"), TEXT("tensormap"), TEXT(""), NULL};
    CHECK(pack(&packing, slots, 6, NULL) != 0 && error.code == SILO_ERROR_UNSUPPORTED);
    CHECK(says("k: parameter x is a tensor map, and nothing says how to encode it"));
    map.swizzle = 1;
    CHECK(pack(&packing, slots, 6, &map) == 0); /* 16 bytes wide */
    silo_packing_clear(&packing);
    map.element_bytes = 16;
    CHECK(pack(&packing, slots, 6, &map) != 0);
    CHECK(
        says("k: the tensor map of 'x' cannot be encoded: its box is 64 bytes wide, and a swizzle "
             "of 32 bytes takes at most that"));
    slots[4] = (struct silo_layout_slot){TEXT("z"), TEXT("i32"), TEXT(""), NULL};
    map.swizzle = 0;
    CHECK(pack(&packing, slots, 6, &map) != 0);
    CHECK(says("k: the binary takes 'z', which is not a parameter"));
    const struct silo_map_axis axes[2] = {{.axis = 3}, {.axis = -1, .extent = 64, .stride = 1}};
    map.element_bytes = 4;
    map.axes = axes;
    slots[4] = (struct silo_layout_slot){TEXT("n"), TEXT("i32"), TEXT(""), NULL};
    CHECK(pack(&packing, slots, 6, &map) == 0 && packing.packed[0].pack == SILO_PACK_ARRAY_MAP);
    CHECK(packing.maps[0].of_array == 1 && packing.maps[0].axes[0] == 3);
    CHECK(packing.maps[0].axes[1] == SILO_NO_AXIS && packing.maps[0].shape[1] == 64 &&
          packing.maps[0].strides[1] == 1);
    silo_packing_clear(&packing);
    slots[4] = (struct silo_layout_slot){TEXT("n"), TEXT("i33"), TEXT(""), NULL};
    CHECK(pack(&packing, slots, 6, &map) != 0);
    CHECK(says("k: not a parameter of a kernel's binary: parameter 4, 'n', of type i33"));
    silo_packing_clear(&packing);
}

/* ---- descriptors and their maps ---- */

static void descriptors(void) {
    struct silo_descriptor one = {.address = 64, .shape = {3, 8}, .strides = {8, 1}, .rank = 2};
    const struct silo_dtype type = {SILO_FLOAT, 32};
    uint8_t axis;
    CHECK(silo_part_named("stride.4", &axis) == SILO_PART_STRIDE && axis == 4);
    CHECK(silo_part_named("stride.5", &axis) < 0 && silo_part_named("s", &axis) < 0);
    CHECK(silo_part_named("", &axis) < 0 && silo_part_named("shape.", &axis) < 0);
    CHECK(silo_descriptor_check(&one, type, &error) == 0);
    one.address = 72;
    CHECK(silo_descriptor_check(&one, type, &error) != 0 && error.code == SILO_ERROR_MISALIGNED);
    one.address = 0;
    CHECK(silo_descriptor_check(&one, type, &error) != 0 && error.code == SILO_ERROR_NULL);
    one.address = 64;
    one.strides[0] = 9;
    CHECK(silo_descriptor_check(&one, type, &error) != 0 && error.code == SILO_ERROR_SHAPE);
    one.strides[0] = INT64_MAX;
    CHECK(silo_descriptor_check(&one, type, &error) != 0);
    one.strides[0] = 8;
    one.nan = 1;
    CHECK(silo_descriptor_check(&one, (struct silo_dtype){SILO_INT, 32}, &error) != 0);
    CHECK(error.code == SILO_ERROR_DTYPE);
    const int64_t block[2] = {64, 32}, odd[2] = {64, 33};
    uint64_t bits;
    CHECK(silo_descriptor_block_bits(block, 2, &bits, &error) == 0);
    CHECK(silo_block_word(bits) == (2 | 6 << 3 | 5 << 8) && silo_block_rank(bits) == 2);
    CHECK(silo_descriptor_block_bits(odd, 2, &bits, &error) != 0);
    CHECK(says("has block_shape[1] = 33, which is not a power of two"));
}

/* A driver that writes down what it is asked for. */
static struct {
    int dtype, swizzle, fill;
    uint64_t sizes[2], stride;
    uint32_t box[2];
} asked;

static int encode(void *map, int dtype, uint32_t rank, void *address, const uint64_t *sizes,
                  const uint64_t *strides, const uint32_t *box_sizes, const uint32_t *steps,
                  int interleave, int swizzle, int promotion, int fill) {
    (void)rank, (void)address, (void)steps, (void)interleave, (void)promotion;
    memset(map, 0xff, SILO_MAP_BYTES);
    asked.dtype = dtype;
    asked.swizzle = swizzle;
    asked.fill = fill;
    memcpy(asked.sizes, sizes, sizeof asked.sizes);
    memcpy(asked.box, box_sizes, sizeof asked.box);
    asked.stride = strides[0];
    return sizes[0] == 13 ? 1 : 0;
}

static int enter(struct silo_gpu_device *device, struct silo_gpu_scope *scope) {
    scope->gpu = device->gpu;
    return device->index;
}

static void leave(struct silo_gpu_scope *scope) {
    (void)scope;
}

int silo_gpu_fail(silo_error *out, const struct silo_gpu *gpu, int code, const char *what,
                  int driver_code) {
    return silo_fail_driver(out, code, driver_code, "%s: %s", gpu->name, what);
}

static void maps(void) {
    struct silo_gpu gpu = {.name = "cuda", .version = 13010, .enter = enter, .leave = leave};
    struct silo_gpu_device device = {.gpu = &gpu};
    struct silo_descriptor one = {
        .address = 64, .nan = 1, .shape = {3, 8}, .strides = {8, 1}, .rank = 2};
    struct silo_map_form form = {
        .element_type = 7, .element_bytes = 4, .swizzle = 2, .rank = 2, .box = {2, 16}};
    _Alignas(SILO_MAP_ALIGN) uint64_t map[SILO_MAP_BYTES / 8];
    CHECK(silo_map_form_check(&form, &error) == 0);
    CHECK(silo_tensor_map_encode(&device, &form, &one, map, &error) != 0);
    CHECK(error.code == SILO_ERROR_UNSUPPORTED);
    gpu.tensor_map_encode = encode;
    CHECK(silo_tensor_map_encode(&device, &form, &one, map, &error) == 0);
    CHECK(asked.sizes[0] == 8 && asked.sizes[1] == 3 && asked.box[0] == 16 && asked.stride == 32);
    CHECK(asked.fill == 1 && asked.swizzle == 2 && asked.dtype == 7);
    CHECK(map[1] == (UINT64_MAX & ~(UINT64_C(1) << 21)) && map[0] == UINT64_MAX);
    gpu.version = 13020;
    one.tf32 = 1;
    CHECK(silo_tensor_map_encode(&device, &form, &one, map, &error) == 0);
    CHECK(map[1] == UINT64_MAX && asked.dtype == 11);
    one.shape[1] = 13;
    CHECK(silo_tensor_map_encode(&device, &form, &one, map, &error) != 0 && error.driver_code == 1);
    CHECK(
        says("cannot be used: the driver refuses its tensor map (error 1): extents/box 3/2, 13/16, "
             "elements of 4 bytes and type 7, swizzle 2"));
    device.index = 201;
    CHECK(silo_tensor_map_encode(&device, &form, &one, map, &error) != 0);
    CHECK(says("cuda: making a context current") && error.driver_code == 201);
    form.box[0] = 257;
    CHECK(silo_map_form_check(&form, &error) != 0);
    CHECK(says("its box [257, 16] has more than 256 elements along an axis"));
    form = (struct silo_map_form){.element_bytes = 2, .rank = 1, .box = {4}};
    CHECK(silo_map_form_check(&form, &error) != 0);
    CHECK(says("its box is 8 bytes wide, which is not a multiple of 16"));
    form.swizzle = 4;
    CHECK(silo_map_form_check(&form, &error) != 0 &&
          says("there is no swizzle 4 or no element type 0"));
    form.rank = 6;
    CHECK(silo_map_form_check(&form, &error) != 0);
}

static void array_maps(void) {
    struct silo_map_form form = {.element_bytes = 2,
                                 .rank = 3,
                                 .box = {1, 64, 32},
                                 .of_array = 1,
                                 .axes = {SILO_NO_AXIS, 1, 0},
                                 .shape = {5, 0, 0},
                                 .strides = {4096, 0, 0}};
    int64_t sizes[2] = {32, 100}, strides[2] = {1, 40};
    struct silo_descriptor one;
    CHECK(silo_map_reads_shape(&form));
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) == 0);
    CHECK(one.rank == 3 && one.address == 64 && one.shape[0] == 5 && one.strides[0] == 4096);
    CHECK(one.shape[1] == 100 && one.strides[1] == 40 && one.shape[2] == 32 && one.strides[2] == 1);
    CHECK(silo_map_of_array(&form, 72, 2, sizes, strides, &one, &error) != 0);
    CHECK(error.code == SILO_ERROR_MISALIGNED &&
          says("lies at 0x48, which is not a multiple of 16 bytes, as its tensor map needs it: "
               "copy it to memory of its own"));
    CHECK(silo_map_of_array(&form, 0, 2, sizes, strides, &one, &error) != 0);
    CHECK(error.code == SILO_ERROR_NULL);
    CHECK(silo_map_of_array(&form, 64, 1, sizes, strides, &one, &error) != 0);
    CHECK(says("has 1 dimensions, and its tensor map is made of axis 1"));
    strides[1] = 41;
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) != 0);
    CHECK(says("has strides[1] = 41; a stride of a tensor map is a multiple of 16 bytes, from 0 to "
               "2^40"));
    strides[1] = INT64_MAX;
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) != 0);
    strides[1] = -40;
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) != 0);
    sizes[1] = 1; /* whose stride is nothing */
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) == 0);
    CHECK(one.strides[1] == 0);
    strides[0] = 2;
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) != 0);
    CHECK(says("has strides[0] = 2; the kernel's code takes an array that is contiguous (1) along "
               "this axis"));
    sizes[0] = 0;
    CHECK(silo_map_of_array(&form, 64, 2, sizes, strides, &one, &error) != 0);
    CHECK(says("has shape[0] = 0; a tensor map's extents are 1 to 2^31 - 1"));
    form.axes[1] = form.axes[2] = SILO_NO_AXIS;
    form.shape[1] = form.shape[2] = 32;
    form.strides[1] = 4;
    CHECK(!silo_map_reads_shape(&form));
    CHECK(silo_map_of_array(&form, 64, 0, NULL, NULL, &one, &error) != 0);
    CHECK(says("is taken with strides 0; the kernel's code takes an array that is contiguous (1) "
               "along this axis"));
    form.strides[2] = 1;
    form.strides[1] = 8;
    CHECK(silo_map_of_array(&form, 64, 0, NULL, NULL, &one, &error) == 0 && one.shape[2] == 32);
}

int main(void) {
    words();
    shapes();
    usual_grid();
    other_grids();
    packing();
    bad_packings();
    array_packings();
    layouts();
    descriptors();
    maps();
    array_maps();
    puts("ok");
    return 0;
}
