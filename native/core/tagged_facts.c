#include "tagged_facts.h"

struct silo_value silo_tagged_value(const silo_argument *argument) {
    struct silo_value value = {.type = SILO_IS_NONE};
    switch (argument->kind) {
    case SILO_ARGUMENT_INT:
        value.type = SILO_IS_INT;
        value.integer = argument->value.integer;
        break;
    case SILO_ARGUMENT_BOOL:
        value.type = SILO_IS_BOOL;
        value.integer = argument->value.integer != 0;
        break;
    case SILO_ARGUMENT_FLOAT:
        value.type = SILO_IS_FLOAT;
        value.real = argument->value.real;
        break;
    case SILO_ARGUMENT_TEXT:
        value.type = SILO_IS_TEXT;
        value.text =
            (struct silo_string){argument->value.text, (uint32_t)strlen(argument->value.text)};
        break;
    case SILO_ARGUMENT_TYPE:
        value.type = SILO_IS_ELEMENT;
        value.element = argument->element;
        break;
    default:
        break;
    }
    return value;
}

/* Converts the 64-bit slot of a number to a value; its type is the one that the guard word `code`
 * states. */
static struct silo_value number_of(uint64_t code, uint64_t slot) {
    struct silo_value value = {.type = SILO_IS_INT};
    switch (silo_code_kind(code)) {
    case SILO_VALUE_FLOAT:
        value.type = SILO_IS_FLOAT;
        memcpy(&value.real, &slot, sizeof value.real);
        break;
    case SILO_VALUE_BOOL:
        value.type = SILO_IS_BOOL;
        value.integer = slot != 0;
        break;
    default:
        value.integer = (int64_t)slot;
        break;
    }
    return value;
}

static void array_facts(const silo_argument *argument, struct silo_argument_facts *facts,
                        int64_t *strides) {
    if (argument->kind == SILO_ARGUMENT_POINTER)
        return;
    facts->rank = argument->rank;
    facts->shape = argument->rank > 0 ? argument->shape : strides;
    facts->strides = silo_tagged_strides(argument, strides);
}

void silo_tagged_facts(const struct silo_tagged *tagged, struct silo_argument_facts *facts,
                       int64_t *strides) {
    const struct silo_intake *intake = tagged->intake;
    for (int32_t i = 0; i < intake->count; i++) {
        const silo_argument *argument = silo_tagged_argument(tagged, i);
        const uint64_t code = tagged->key[i];
        struct silo_argument_facts *fact = &facts[i];
        memset(fact, 0, sizeof *fact);
        fact->kind = (uint8_t)silo_code_kind(code);
        fact->flags = (uint8_t)silo_code_flags(code);
        fact->element = (uint16_t)(silo_code_type(code) << 8 | silo_code_bits(code));
        switch (fact->kind) {
        case SILO_VALUE_POINTER:
            array_facts(argument, fact, strides + (size_t)i * SILO_MAX_AXES);
            break;
        case SILO_VALUE_DESCRIPTOR:
            array_facts(argument, fact, strides + (size_t)i * SILO_MAX_AXES);
            fact->block = argument->block;
            break;
        case SILO_VALUE_INT:
        case SILO_VALUE_BOOL:
        case SILO_VALUE_FLOAT:
            fact->number = number_of(code, tagged->slots[i]);
            break;
        case SILO_VALUE_CONSTANT:
            fact->element = 0;
            fact->number = argument->kind == SILO_ARGUMENT_ABSENT ? intake->names[i].fallback
                                                                  : silo_tagged_value(argument);
            break;
        default:
            fact->element = 0;
            break;
        }
    }
}
