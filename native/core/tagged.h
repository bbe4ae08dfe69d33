/* The tagged arguments of one call (silo.h), read into slots and guard words as Python's are: the
 * same facts, so that both choose the same variant. */
#ifndef SILO_TAGGED_H
#define SILO_TAGGED_H

#include "argument_word.h"
#include "descriptor.h"
#include "extents.h"
#include "intake.h"
#include "texts.h"

/* The kind of a constant; in the place of an element type of its word. */
enum silo_constant_tag {
    SILO_TAG_INT = 1,
    SILO_TAG_FLOAT = 2,
    SILO_TAG_TEXT = 3, /* the next word is its number among the kernel's texts */
    SILO_TAG_TYPE = 4, /* its element type */
    SILO_TAG_BOOL = 5,
    SILO_TAG_NONE = 6,
    SILO_TAG_DEFAULT = 7, /* the kernel's own, whatever it is */
};

/* The state of one call. Its arrays are the caller's, as long as the call needs. */
struct silo_tagged {
    const struct silo_intake *intake;
    const silo_argument *arguments; /* those given, `given` of them */
    int32_t given;
    int32_t device;  /* enum silo_device_kind of the queue */
    uint64_t *slots; /* one a parameter; slots[-1] is 0 */
    uint64_t *key;   /* codes first, then the texts that follow them */
    uint32_t words;  /* of the key so far */
    uint32_t descriptors_used;
    bool new_text; /* a text that no earlier call had, so no entry of a guard has it */
    struct silo_descriptor *descriptors; /* a slot holds its own index */
    const struct silo_texts *texts;
    /* As in struct silo_values, if the kernel has extents of arguments; else NULL. */
    const uint64_t **layouts;
    uint64_t *passed; /* the place of the next shape and strides that are passed and not held */
};

/* Words that the arguments of a call may take in its key. */
SILO_INLINE size_t silo_tagged_words(const struct silo_intake *intake) {
    return 2 * (size_t)intake->count + intake->extent_words;
}

SILO_INLINE size_t silo_tagged_descriptors(const struct silo_intake *intake) {
    return intake->count < SILO_MAX_DESCRIPTORS ? (size_t)intake->count : SILO_MAX_DESCRIPTORS;
}

/* The argument of a parameter: the call's value, or its default. */
const silo_argument *silo_tagged_argument(const struct silo_tagged *tagged, int32_t index);

/* Read an argument of a kind that the short ways below leave. -1 with an error that names kernel,
 * argument, its requirement and the given value. */
int silo_tagged_other(struct silo_tagged *tagged, int32_t index, silo_error *error);

/* The words after the codes: buckets of keys, exact values, constants. */
void silo_tagged_extra(struct silo_tagged *tagged);

/* Extents of the parameters that are held, and `grid` (three dimensions, or NULL). */
int silo_tagged_extents(struct silo_tagged *tagged, const int64_t *grid, silo_error *error);

/* Two words of a constant: false if it is a new text. */
bool silo_tagged_constant(const struct silo_texts *texts, const silo_argument *argument,
                          uint64_t word[2]);

/* Strides of an array or descriptor: its own, or the compact ones, written to `room`
 * (SILO_MAX_AXES of them). */
const int64_t *silo_tagged_strides(const silo_argument *argument, int64_t *room);

/* Read every argument. */
SILO_INLINE int silo_tagged_read(struct silo_tagged *tagged, silo_error *error) {
    const struct silo_intake *intake = tagged->intake;
    for (int32_t i = 0; i < intake->count; i++) {
        const struct silo_parameter *parameter = &intake->parameters[i];
        const silo_argument *argument = &tagged->arguments[i];
        if (SILO_LIKELY(i < tagged->given)) {
            if (SILO_LIKELY(
                    argument->kind == SILO_ARGUMENT_POINTER && argument->flags == 0 &&
                    parameter->kind <= SILO_PARAMETER_POINTER &&
                    (parameter->type.bits == 0 ||
                     argument->element == (parameter->type.code << 8 | parameter->type.bits)))) {
                const uint64_t address = (uint64_t)(uintptr_t)argument->value.pointer;
                tagged->slots[i] = address;
                tagged->key[i] =
                    SILO_CODE(SILO_VALUE_POINTER, argument->element >> 8, argument->element & 0xff,
                              silo_address_flags(parameter, address, argument->element & 0xff));
                continue;
            }
            if (SILO_LIKELY(argument->kind == SILO_ARGUMENT_INT &&
                            parameter->kind == SILO_PARAMETER_ANY)) {
                const int64_t value = argument->value.integer;
                tagged->slots[i] = (uint64_t)value;
                tagged->key[i] =
                    SILO_CODE(SILO_VALUE_INT, SILO_INT, value == (int32_t)value ? 32 : 64,
                              silo_integer_flags(parameter, value));
                continue;
            }
        }
        if (SILO_UNLIKELY(silo_tagged_other(tagged, i, error) != 0))
            return -1;
    }
    tagged->words = (uint32_t)intake->count;
    if (intake->some_extra)
        silo_tagged_extra(tagged);
    return 0;
}

#endif
