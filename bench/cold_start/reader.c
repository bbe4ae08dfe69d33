/* What a launch asks of the reader and the choice in C, for bench.cold_start.readers: open a
 * bundle, choose for a call of its first kernel, give the code and the grid's program. */
#include "choice.h"
#include "node_program.h"

#include <stdlib.h>

struct reader_given {
    int32_t kind, element, flags; /* as in the words of the guard */
    int64_t number;
};

struct reader_chosen {
    uint32_t number;
    int32_t instructions;
    const silo_instruction *program; /* of the grid's first axis; not freed: the process ends */
    const uint8_t *code;
    uint64_t bytes;
};

struct silo_reader *reader_open(const uint8_t *data, size_t bytes, silo_error *error) {
    const struct silo_reader_source source = {.data = data, .bytes = bytes, .name = "bundle"};
    return silo_reader_open(&source, error);
}

int reader_choose(struct silo_reader *reader, const struct reader_given *given, const char *target,
                  struct reader_chosen *chosen, silo_error *error) {
    const struct silo_kernel_info *kernel = silo_reader_kernel(reader, 0, error);
    if (kernel == NULL)
        return -1;
    struct silo_seen seen[64] = {{0}};
    for (uint32_t i = 0; i < kernel->signature->count && i < 64; i++)
        seen[i] = (struct silo_seen){
            .kind = (uint8_t)given[i].kind,
            .flags = (uint8_t)given[i].flags,
            .element = (uint16_t)given[i].element,
            .number = {.type = SILO_IS_INT, .integer = given[i].number},
        };
    const struct silo_seen_call call = {.arguments = seen};
    const struct silo_place place = {.target = target};
    if (silo_choose(reader, 0, &call, &place, &chosen->number, error) != 0)
        return -1;
    const struct silo_variant *variant = silo_reader_variant(reader, 0, chosen->number, error);
    struct silo_program programs[3] = {{0}};
    if (variant == NULL || silo_grid_programs(kernel, variant, &place, programs, error) != 0)
        return -1;
    void *owned = NULL; /* not freed either */
    chosen->program = programs[0].code;
    chosen->instructions = programs[0].count;
    chosen->bytes = silo_reader_blob(reader, variant->blob)->raw_bytes;
    chosen->code = silo_reader_bytes(reader, variant->blob, &owned, error);
    return chosen->code == NULL ? -1 : 0;
}
