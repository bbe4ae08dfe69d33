/* Structs of arrays, byte for byte, and dynamic layouts; prints ok. */
#include "extents.h"
#include "packing.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, error.text);                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static silo_error error;

static void *no_map(void *context, int32_t slot, const struct silo_map_form *form) {
    (void)context, (void)slot, (void)form;
    return NULL;
}

static void structs(void) {
    static const char *const leaves[][2] = {
        {"ptr", ""}, {"i32", "shape.0"}, {"i32", "shape.1"}, {"i64", "stride.0"}};
    struct silo_struct_form form = {.count = 0};
    for (int i = 0; i < 4; i++)
        CHECK(silo_struct_add(&form, leaves[i][0], leaves[i][1], &error) == 0);
    CHECK(form.bytes == 24 && form.axes == 2 && form.points && form.leaves[3].offset == 16);
    CHECK(silo_struct_add(&form, "i64", "shape.1", &error) != 0);
    CHECK(silo_struct_add(&form, "i32", "", &error) != 0);
    CHECK(silo_struct_add(&form, "ptr", "shape.2", &error) != 0);
    CHECK(silo_struct_add(&form, "i16", "shape.2", &error) != 0);
    CHECK(silo_struct_add(&form, "i32", "nan", &error) != 0);
    CHECK(silo_struct_add(&form, "i32", "shape.5", &error) != 0);
    CHECK(form.count == 4);
    struct silo_struct_form coordinates = {.count = 0};
    for (int i = 0; i < 3; i++)
        CHECK(silo_struct_add(&coordinates, "i32", i == 0 ? "shape.2" : leaves[i][1], &error) == 0);
    CHECK(coordinates.bytes == 12 && coordinates.axes == 3 && !coordinates.points);

    const struct silo_layout_item items[2] = {
        {.type = "struct", .slot = 1, .writes = true, .form = &form},
        {.type = "struct", .slot = 1, .form = &coordinates},
    };
    const struct silo_function function = {0};
    struct silo_packing packing;
    int32_t wrong;
    CHECK(silo_packing_init(&packing, items, 2, &function, &wrong, &error) == 0);
    uint64_t room[3] = {0}, scratch[2] = {0};
    uint64_t layout[7] = {3, 6, 8, 2, 800, 0, 1};
    const uint64_t *known[2] = {NULL, layout};
    struct silo_values values = {room + 1, scratch, NULL, known};
    room[2] = 4096;
    void **params = malloc(packing.room * sizeof *params); /* no more than that is written */
    CHECK(params != NULL);
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == SILO_ALL_PACKED);
    const struct {
        uint64_t address;
        int32_t rows, columns;
        int64_t stride;
    } expected = {4096, 6, 8, 800};
    CHECK(sizeof expected == form.bytes && memcmp(params[0], &expected, sizeof expected) == 0);
    CHECK(memcmp(params[1], (const int32_t[]){2, 6, 8}, 12) == 0);
    layout[1] = UINT64_C(1) << 31;
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == 0);
    CHECK(silo_pack_refuse(&packing, &values, 0, "k", "x", &error) != 0);
    CHECK(strstr(error.text, "k: the extents and strides of 'x' are passed to this code") != NULL);
    layout[1] = (uint64_t)-1; /* a stride may be negative; the type takes it */
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == SILO_ALL_PACKED);
    layout[0] = 2;
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == 1);
    layout[0] = UINT64_MAX; /* no array */
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == 0);
    known[1] = NULL;
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == 0);
    values.layouts = NULL;
    CHECK(silo_pack(&packing, &values, params, no_map, NULL) == 0);
    free(params);
    uint64_t codes[2] = {0, SILO_CODE(SILO_VALUE_ADDRESS, 0, 0, 0)};
    char text[64];
    const char *wanted;
    int32_t where;
    CHECK(silo_packing_check(&packing, codes, 2, text, sizeof text, &where, &wanted) != 0);
    CHECK(where == 1 && strcmp(wanted, "an array of at least 2 dimensions") == 0);
    codes[1] = SILO_CODE(SILO_VALUE_POINTER, SILO_FLOAT, 32, 0);
    CHECK(silo_packing_check(&packing, codes, 2, text, sizeof text, &where, &wanted) == 0);
    silo_packing_clear(&packing);
}

/* What silo.core.extents says too. */
static void dynamic_layouts(void) {
    const int64_t sizes[2] = {6, 8}, steps[2] = {8, 1}, far[2] = {INT64_MIN, 1};
    struct silo_dynamic_layout call = silo_dynamic_of_word(silo_dynamic_word(2, sizes, steps, 32));
    CHECK(call.rank == 2 && call.size_bits == 32 && call.offset_bits == 32);
    CHECK(call.axes[0].divisor == 1 && call.axes[0].stride_divisor == 4);
    CHECK(call.axes[0].stride == SILO_STRIDE_PASSED);
    CHECK(call.axes[1].divisor == 4 && call.axes[1].stride == 1);
    struct silo_dynamic_layout code = call;
    CHECK(silo_dynamic_holds(&code, &call) && silo_dynamic_same(&code, &call));
    code.axes[0].divisor = 2;
    CHECK(!silo_dynamic_holds(&code, &call) && !silo_dynamic_same(&code, &call));
    call = silo_dynamic_of_word(silo_dynamic_word(2, sizes, far, 32));
    CHECK(call.offset_bits == 64);
    const int64_t large[1] = {INT64_C(1) << 31}, one[1] = {1}, none[1] = {0};
    CHECK(silo_dynamic_of_word(silo_dynamic_word(1, large, one, 8)).size_bits == 64);
    CHECK(silo_dynamic_of_word(silo_dynamic_word(1, large, one, 8)).offset_bits == 32);
    CHECK(silo_dynamic_of_word(silo_dynamic_word(1, none, large, 8)).offset_bits == 64);
    CHECK(silo_dynamic_of_word(silo_dynamic_word(1, none, none, 8)).axes[0].stride == 0);
    CHECK(silo_dynamic_of_word(silo_dynamic_word(0, none, none, 6)).rank == 0);
}

int main(void) {
    structs();
    dynamic_layouts();
    puts("ok");
    return 0;
}
