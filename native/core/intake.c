#include "intake.h"

#include <stdlib.h>

/* Converts a parameter's default to an argument. Values that an argument cannot have (tuples,
 * functions, integers beyond 64 bits) become absent; the choice of a variant reads these from the
 * signature. */
static silo_argument argument_of(const struct silo_value *value) {
    switch ((enum silo_value_type)value->type) {
    case SILO_IS_NONE:
        return silo_none();
    case SILO_IS_BOOL:
        return silo_bool(value->integer != 0);
    case SILO_IS_INT:
        return silo_int(value->integer);
    case SILO_IS_FLOAT:
        return silo_float(value->real);
    case SILO_IS_TEXT:
        if (memchr(value->text.data, '\0', value->text.length) == NULL)
            return silo_text(value->text.data);
        break;
    case SILO_IS_ELEMENT:
        return silo_type(value->element);
    case SILO_IS_BIG_INT:
    case SILO_IS_FUNCTION:
    case SILO_IS_TUPLE:
    case SILO_IS_RECORD:
    case SILO_IS_FOREIGN:
        break;
    }
    return silo_absent_argument();
}

int silo_intake_init(struct silo_intake *intake, const struct silo_kernel_info *kernel,
                     silo_error *error) {
    memset(intake, 0, sizeof *intake);
    const uint32_t count = kernel->signature->count;
    if (count > SILO_MAX_PARAMETERS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "%s has %u parameters; Silo launches kernels with up to %d",
                         kernel->name.data, count, SILO_MAX_PARAMETERS);
    intake->kernel = kernel->name.data;
    intake->names = kernel->signature->parameters;
    intake->count = (int32_t)count;
    intake->parameters = calloc((size_t)count + 1, sizeof *intake->parameters);
    intake->defaults = calloc((size_t)count + 1, sizeof *intake->defaults);
    intake->extents = calloc((size_t)count + 1, sizeof *intake->extents);
    if (intake->parameters == NULL || intake->defaults == NULL || intake->extents == NULL)
        return silo_fail_memory(error);
    struct silo_held_parts held = {.parameters = intake->parameters, .extents = intake->extents};
    if (silo_held_of(kernel, &held, error) != 0)
        return -1;
    intake->grid = held.grid;
    intake->extent_words = held.grid ? SILO_GRID_WORDS : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (intake->names[i].has_default)
            intake->defaults[i] = argument_of(&intake->names[i].fallback);
        const struct silo_parameter *parameter = &intake->parameters[i];
        intake->some_extra |= parameter->kind == SILO_PARAMETER_CONSTEXPR ||
                              (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)) != 0;
        if (intake->extents[i] != SILO_EXTENT_FREE) {
            intake->some_extents = true;
            intake->passed += intake->extents[i] == SILO_EXTENT_DYNAMIC;
            intake->extent_words += (uint32_t)silo_extent_room(intake->extents[i]);
        }
    }
    return 0;
}

void silo_intake_clear(struct silo_intake *intake) {
    free(intake->parameters);
    free(intake->defaults);
    free(intake->extents);
    memset(intake, 0, sizeof *intake);
}
