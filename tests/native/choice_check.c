/* What a test asks of the choice: tagged arguments in, the variant's number and its grid out, for a
 * place that the test makes up. */
#include "choice.h"
#include "held.h"
#include "node_program.h"
#include "tagged_facts.h"

#include <stdlib.h>

struct check {
    struct silo_reader *reader;
    struct silo_intake *intakes; /* one a kernel */
    struct silo_texts texts;
};

void check_close(struct check *check) {
    if (check == NULL)
        return;
    const uint32_t count = check->reader ? silo_reader_kernel_count(check->reader) : 0;
    for (uint32_t i = 0; i < count; i++)
        silo_intake_clear(&check->intakes[i]);
    silo_texts_clear(&check->texts);
    silo_reader_close(check->reader);
    free(check->intakes);
    free(check);
}

struct check *check_open(const uint8_t *data, size_t bytes, silo_error *error) {
    const struct silo_reader_source source = {.data = data, .bytes = bytes, .name = "bundle"};
    struct check *check = calloc(1, sizeof *check);
    check->reader = silo_reader_open(&source, error);
    const uint32_t count = check->reader ? silo_reader_kernel_count(check->reader) : 0;
    check->intakes = calloc(count + 1, sizeof *check->intakes);
    for (uint32_t i = 0; i < count; i++) {
        const struct silo_kernel_info *info = silo_reader_kernel(check->reader, i, error);
        if (info == NULL || silo_intake_init(&check->intakes[i], info, error) != 0) {
            check_close(check);
            return NULL;
        }
    }
    if (check->reader != NULL)
        return check;
    check_close(check);
    return NULL;
}

int64_t check_kernel(const struct check *check, const char *name) {
    return silo_reader_kernel_index(check->reader, name);
}

/* The flags of each parameter and what is held of its extents; whether the grid is held. */
int check_held(const struct check *check, uint32_t kernel, uint8_t *flags, uint8_t *extents) {
    const struct silo_intake *intake = &check->intakes[kernel];
    for (int32_t i = 0; i < intake->count; i++) {
        flags[i] = intake->parameters[i].flags;
        extents[i] = intake->extents[i];
    }
    return intake->grid;
}

struct found {
    uint32_t number;
    uint32_t axes;
    int32_t counts[3]; /* of instructions, one behind the other in `code` */
    silo_instruction code[1024];
};

struct asked {
    const silo_argument *arguments;
    int32_t count;
    int32_t device; /* enum silo_device_kind */
    const silo_call *call;
    const struct silo_call_device *place;
};

static int add_programs(struct check *check, uint32_t kernel, const struct asked *asked,
                        struct found *found, silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(check->reader, kernel, error);
    const struct silo_variant *variant =
        silo_reader_variant(check->reader, kernel, found->number, error);
    struct silo_program programs[3];
    size_t used = 0;
    if (variant == NULL || silo_grid_programs(info, variant, asked->place, programs, error) != 0)
        return -1;
    found->axes = info->grid_axes;
    for (uint32_t i = 0; i < info->grid_axes; i++) {
        const size_t count = (size_t)programs[i].count;
        if (used + count <= sizeof found->code / sizeof *found->code)
            memcpy(found->code + used, programs[i].code, count * sizeof *found->code);
        found->counts[i] = programs[i].count;
        used += count;
        free(programs[i].code);
    }
    return 0;
}

/* The choice, or with `text` its explanation. 0, or the error's code. */
int check_choose(struct check *check, uint32_t kernel, const struct asked *asked,
                 struct found *found, char **text, silo_error *error) {
    const struct silo_intake *intake = &check->intakes[kernel];
    uint64_t slots[SILO_MAX_PARAMETERS + 1] = {0}, key[4096];
    struct silo_descriptor descriptors[SILO_MAX_DESCRIPTORS];
    const uint64_t *layouts[SILO_MAX_PARAMETERS];
    static uint64_t passed[SILO_MAX_PARAMETERS * SILO_PASSED_WORDS];
    struct silo_tagged tagged = {.intake = intake,
                                 .layouts = layouts,
                                 .passed = passed,
                                 .arguments = asked->arguments,
                                 .argument_count = asked->count,
                                 .device = asked->device,
                                 .slots = slots + 1,
                                 .key = key,
                                 .descriptors = descriptors,
                                 .texts = &check->texts};
    if (silo_tagged_read(&tagged, error) != 0)
        return error->code;
    if ((intake->some_extents || intake->grid) &&
        silo_tagged_extents(&tagged, asked->call->grid, error) != 0)
        return error->code;
    struct silo_argument_facts seen[SILO_MAX_PARAMETERS];
    static int64_t strides[SILO_MAX_PARAMETERS * SILO_MAX_AXES];
    struct silo_option_value options[8];
    silo_tagged_facts(&tagged, seen, strides);
    for (size_t i = 0; i < asked->call->option_count; i++)
        options[i] = (struct silo_option_value){asked->call->options[i].name,
                                                silo_tagged_value(&asked->call->options[i].value)};
    const struct silo_call_arguments call = {.arguments = seen,
                                             .option_count = (uint32_t)asked->call->option_count,
                                             .options = options,
                                             .grid = asked->call->grid};
    if (text != NULL)
        return silo_choice_explain(check->reader, kernel, &call, asked->place, text, error) == 0
                   ? 0
                   : error->code;
    if (silo_choose(check->reader, kernel, &call, asked->place, &found->number, error) != 0 ||
        (asked->call->grid == NULL && add_programs(check, kernel, asked, found, error) != 0))
        return error->code;
    return 0;
}
