/* Plans without Python, for the sanitizers: blocks filled from random arguments and launched on the
 * CPU, beside the same launches one by one; random orders of launches, at the same time where they
 * may; errors. */
#include "cpu_plan.h"
#include "cpu_pool.h"
#include "plan_fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { ARRAYS = 6, LENGTH = 512, NODES = 40, TURNS = 300 };

static uint64_t state = 37;

static uint32_t chance(uint32_t below) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % below;
}

/* out[i] = 3 * out[i] + from[i] + value: the order of two on one array shows. */
static int32_t mix(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                   void *scratch, void *context) {
    uint32_t *out = *(uint32_t **)params[0];
    const uint32_t *from = *(uint32_t **)params[1];
    const uint32_t value = *(uint32_t *)params[2];
    (void)grid, (void)context;
    *(uint64_t *)scratch = begin;
    for (uint64_t i = begin; i < end; i++)
        for (uint64_t k = 0; k < 8; k++)
            out[8 * i + k] = 3 * out[8 * i + k] + from[8 * i + k] + value;
    return 0;
}

static int32_t fails(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end,
                     void *scratch, void *context) {
    struct silo_context *own = context;
    (void)params, (void)grid, (void)begin, (void)end, (void)scratch;
    memcpy(own->fault.text, "what was wrong", 15);
    return 9;
}

static struct silo_function function_of(silo_cpu_entry *entry) {
    struct silo_function function;
    memset(&function, 0, sizeof function);
    memcpy(&function.handle, &entry, sizeof entry);
    for (int axis = 0; axis < 3; axis++)
        function.grid_limit[axis] = INT32_MAX;
    function.scratch_bytes = 64;
    function.counts_blocks = 0;
    function.cost = 16;
    return function;
}

struct made {
    struct silo_plan_form form;
    struct silo_plan_effects effects[NODES];
    struct silo_function function;
    int out[NODES], from[NODES];
    uint32_t value[NODES];
};

/* Arguments: ARRAYS arrays, then the number of programs. Parameters: two pointers and a constant.
 */
static void make(struct made *made) {
    memset(made, 0, sizeof *made);
    struct silo_plan_form *form = &made->form;
    made->function = function_of(mix);
    form->values = calloc(ARRAYS + 2, sizeof *form->values);
    form->moves = calloc(2 * NODES, sizeof *form->moves);
    form->grids = calloc(NODES, sizeof *form->grids);
    form->nodes = calloc(NODES, sizeof *form->nodes);
    form->checks = calloc(1, sizeof *form->checks);
    CHECK(form->values && form->moves && form->grids && form->nodes && form->checks);
    form->value_count = ARRAYS + 2;
    for (int i = 0; i <= ARRAYS; i++)
        form->values[i] = (struct silo_plan_value){.kind = SILO_PLAN_GIVEN, .argument = (int16_t)i};
    silo_instruction *half = calloc(3, sizeof *half);
    CHECK(half != NULL);
    half[0] = (silo_instruction){SILO_OP_ARGUMENT, ARRAYS, 0};
    half[1] = (silo_instruction){SILO_OP_CONST, 0, 2};
    half[2] = (silo_instruction){SILO_OP_FLOORDIV, 0, 0};
    form->values[ARRAYS + 1] = (struct silo_plan_value){
        .kind = SILO_PLAN_COMPUTED, .argument = -1, .count = 3, .program = half};
    form->check_count = 1;
    form->checks[0] = (struct silo_plan_check){
        .value = 0,
        .parameter = {.type = {SILO_UINT, 32}, .kind = SILO_PARAMETER_POINTER, .flags = 3}};
    form->checks[0].word = SILO_CODE(SILO_VALUE_POINTER, SILO_UINT, 32, SILO_FLAG_ALIGNED16);
    form->memory_count = ARRAYS;
    for (int i = 0; i < ARRAYS; i++) {
        form->memories[i].argument = i;
        form->overlaps[i] = UINT64_C(1) << i;
    }
    form->node_count = form->grid_count = NODES;
    for (uint32_t i = 0; i < NODES; i++) {
        struct silo_parameter_place *places = calloc(3, sizeof *places);
        CHECK(places != NULL);
        for (size_t k = 0; k < 3; k++)
            places[k] = (struct silo_parameter_place){8 * k, 8};
        made->out[i] = (int)chance(ARRAYS);
        made->from[i] = (int)chance(ARRAYS);
        made->value[i] = chance(1000);
        form->nodes[i] = (struct silo_plan_node){.function = &made->function,
                                                 .kernel = "mix",
                                                 .parameter_count = 3,
                                                 .places = places,
                                                 .values = 64 * i};
        for (uint32_t k = 0; k < 2; k++)
            form->moves[form->move_count++] = (struct silo_plan_move){
                .value = (uint32_t)(k == 0 ? made->out[i] : made->from[i]),
                .at = 64 * i + (uint32_t)sizeof(struct silo_plan_values) + 8 * k,
                .bytes = 8,
                .pack = SILO_PACK_SLOT};
        form->grids[i] = (struct silo_plan_grid){
            .node = i, .axis = {ARRAYS + (int)(i % 2), -1, -1}, .extent = {1, 1, 1}};
        made->effects[i] = (struct silo_plan_effects){.reads = UINT64_C(1) << made->from[i],
                                                      .writes = UINT64_C(1) << made->out[i],
                                                      .alone = chance(20) == 0};
    }
    form->block_bytes = 64 * NODES;
}

static void *open_plan(struct made *made, bool by_effects, silo_error *error) {
    CHECK(silo_plan_order(made->form.nodes, NODES, by_effects ? made->effects : NULL,
                          made->form.overlaps, error) == 0);
    const struct silo_plan_shape shape = {NULL, made->form.nodes, NODES, made->form.block_bytes};
    void *plan = silo_cpu_plan.open(&shape, error);
    uint8_t *block;
    CHECK(plan != NULL && silo_cpu_plan.begin(plan, &block, error) == 0);
    for (uint32_t i = 0; i < NODES; i++) {
        struct silo_plan_values *values = (void *)(block + made->form.nodes[i].values);
        *values = (struct silo_plan_values){{1, 1, 1}, 1};
        silo_plan_write((uint8_t *)(values + 1) + 16, made->value[i], SILO_PACK_SLOT, 8);
    }
    return plan;
}

static uint32_t array[2][ARRAYS][LENGTH] __attribute__((aligned(64)));

static struct silo_plan_arguments arguments_of(uint64_t *words, uint64_t *low, uint64_t *high,
                                               uint32_t programs) {
    for (int i = 0; i < ARRAYS; i++) {
        words[i] = low[i] = (uint64_t)(uintptr_t)array[0][i];
        high[i] = low[i] + sizeof array[0][i];
    }
    words[ARRAYS] = programs;
    low[ARRAYS] = high[ARRAYS] = 0;
    return (struct silo_plan_arguments){
        .bindings = {.slot_count = ARRAYS + 1, .values = (const int64_t *)words},
        .words = words,
        .low = low,
        .high = high};
}

static void one_by_one(const struct made *made, uint32_t programs) {
    for (int i = 0; i < NODES; i++) {
        uint32_t *out = array[1][made->out[i]];
        const uint32_t *from = array[1][made->from[i]];
        for (uint32_t k = 0; k < 8 * (i % 2 == 0 ? programs : programs / 2); k++)
            out[k] = 3 * out[k] + from[k] + made->value[i];
    }
}

static void random_plans(void) {
    for (int round = 0; round < 6; round++) {
        struct made made;
        silo_error error;
        uint64_t words[ARRAYS + 1], low[ARRAYS + 1], high[ARRAYS + 1], overlaps[SILO_PLAN_MEMORIES];
        uint32_t check = 77;
        make(&made);
        void *plan = open_plan(&made, true, &error);
        memset(array, 0, sizeof array);
        for (int turn = 0; turn < TURNS; turn++) {
            const uint32_t programs = chance(LENGTH / 8 + 1);
            const struct silo_plan_arguments arguments = arguments_of(words, low, high, programs);
            uint8_t *block;
            CHECK(silo_cpu_plan.begin(plan, &block, &error) == 0);
            silo_plan_overlaps(&made.form, &arguments, overlaps);
            CHECK(memcmp(overlaps, made.form.overlaps, ARRAYS * sizeof *overlaps) == 0);
            CHECK(silo_plan_fill(&made.form, &arguments, block, &check, &error) ==
                  SILO_PLAN_FILLED);
            CHECK(silo_cpu_plan.launch(plan, NULL, &error) == 0);
            one_by_one(&made, programs);
            CHECK(memcmp(array[0], array[1], sizeof array[0]) == 0);
        }
        uint8_t *block;
        struct silo_plan_arguments arguments = arguments_of(words, low, high, 4);
        CHECK(silo_cpu_plan.begin(plan, &block, &error) == 0);
        words[0] += 4; /* not aligned as it was recorded */
        CHECK(silo_plan_fill(&made.form, &arguments, block, &check, &error) ==
                  SILO_PLAN_OTHER_FORM &&
              check == 0);
        words[0] -= 4;
        words[ARRAYS] = (uint64_t)-5;
        CHECK(silo_plan_fill(&made.form, &arguments, block, &check, &error) == SILO_PLAN_REFUSED);
        CHECK(error.code == SILO_ERROR_GRID &&
              strstr(error.text, "mix: grid dimension x is -5") != NULL);
        words[ARRAYS] = UINT64_C(1) << 40;
        CHECK(silo_plan_fill(&made.form, &arguments, block, &check, &error) == SILO_PLAN_REFUSED);
        low[1] = low[0] + 64;
        silo_plan_overlaps(&made.form, &arguments, overlaps);
        CHECK(overlaps[0] == (made.form.overlaps[0] | 2) &&
              overlaps[1] == (made.form.overlaps[1] | 1));
        silo_cpu_plan.close(plan);
        silo_plan_form_clear(&made.form);
    }
}

/* A launch that fails: the error names it, and those that wait for it are not made. */
static void failing(bool by_effects) {
    struct made made;
    silo_error error;
    make(&made);
    struct silo_function bad = function_of(fails);
    for (uint32_t i = 0; i < NODES; i++) {
        made.effects[i] =
            (struct silo_plan_effects){.writes = UINT64_C(1) << i % 2, .reads = 0, .alone = false};
        /* The launch's arrays are those of its effects: other arrays would be a race of the test.
         */
        made.out[i] = made.from[i] = (int)i % 2;
        made.form.moves[2 * i].value = made.form.moves[2 * i + 1].value = i % 2;
    }
    made.form.nodes[20].function = &bad;
    made.form.nodes[20].kernel = "bad";
    void *plan = open_plan(&made, by_effects, &error);
    uint64_t words[ARRAYS + 1], low[ARRAYS + 1], high[ARRAYS + 1];
    uint32_t check;
    for (int turn = 0; turn < 30; turn++) {
        const struct silo_plan_arguments arguments = arguments_of(words, low, high, 8);
        uint8_t *block;
        CHECK(silo_cpu_plan.begin(plan, &block, &error) == 0);
        CHECK(silo_plan_fill(&made.form, &arguments, block, &check, &error) == SILO_PLAN_FILLED);
        CHECK(silo_cpu_plan.launch(plan, NULL, &error) == -1);
        CHECK(error.code == SILO_ERROR_LAUNCH && error.driver_code == 9);
        CHECK(strstr(error.text, "bad: what was wrong (code 9), launch 21 of the 40 of a plan") !=
              NULL);
    }
    const char *reason = NULL;
    CHECK(silo_cpu_plan.explain(plan, &reason) != NULL && reason != NULL);
    silo_cpu_plan.close(plan);
    silo_plan_form_clear(&made.form);
}

int main(void) {
    CHECK(silo_cpu_pool_init() == 0);
    CHECK(silo_cpu_set_threads(4) == 0);
    random_plans();
    failing(false);
    failing(true);
    CHECK(silo_cpu_set_threads(1) == 0);
    printf("done\n");
    return 0;
}
