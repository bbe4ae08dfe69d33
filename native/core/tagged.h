/* Reads the tagged arguments of a call (silo.h) into slots (the 64-bit values of the arguments) and
 * guard words. Slots and words equal the slots and words of the same call from Python, so that C
 * and Python choose the same variant. */
#ifndef SILO_TAGGED_H
#define SILO_TAGGED_H

#include "argument_word.h"
#include "descriptor.h"
#include "extents.h"
#include "intake.h"
#include "texts.h"

/* The kind of a constant. It is stored in those bits of the argument's word that hold an element
 * type for other arguments. */
enum silo_constant_tag {
    SILO_TAG_INT = 1,
    SILO_TAG_FLOAT = 2,
    SILO_TAG_TEXT = 3, /* the next word is the text's number in the kernel's `texts` */
    SILO_TAG_TYPE = 4, /* the next word is the element type */
    SILO_TAG_BOOL = 5,
    SILO_TAG_NONE = 6,
    SILO_TAG_DEFAULT = 7, /* the parameter's default, of a type that no argument has (a tuple) */
};

/* The state of reading a call. The caller owns the arrays. */
struct silo_tagged {
    const struct silo_intake *intake;
    const silo_argument *arguments; /* the `argument_count` arguments of the call */
    int32_t argument_count;
    int32_t device;  /* enum silo_device_kind of the call's queue */
    uint64_t *slots; /* a slot for each parameter; slots[-1] is 0 */
    uint64_t *key;  /* the words that the guard compares: one for each parameter, then further words
                       (silo_tagged_extra) */
    uint32_t words; /* number of words of `key` so far */
    uint32_t descriptors_used;
    bool new_text; /* an argument is a text (a string constant) that no earlier call had, so that no
                      key in the guard matches */
    /* the slot of a descriptor holds its index in this array */
    struct silo_descriptor *descriptors;
    const struct silo_texts *texts;
    /* For each parameter the axes, extents and strides of its array, as in struct silo_values; NULL
     * if the code depends on no argument's extents. */
    const uint64_t **layouts;
    uint64_t *passed; /* where to write the next shape and strides that the code takes as
                         parameters, but that the guard does not compare */
};

/* Returns the most words that the arguments of a call take in its key. */
SILO_INLINE size_t silo_tagged_words(const struct silo_intake *intake) {
    return 2 * (size_t)intake->count + intake->extent_words;
}

SILO_INLINE size_t silo_tagged_descriptors(const struct silo_intake *intake) {
    return intake->count < SILO_MAX_DESCRIPTORS ? (size_t)intake->count : SILO_MAX_DESCRIPTORS;
}

/* Returns the argument for a parameter: the call's value, or the default. */
const silo_argument *silo_tagged_argument(const struct silo_tagged *tagged, int32_t index);

/* Reads an argument that the inline functions below do not handle. On failure returns -1 with an
 * error that names the kernel, the argument, its requirement and the given value. */
int silo_tagged_other(struct silo_tagged *tagged, int32_t index, silo_error *error);

/* Adds the second words of parameters to the key of the call: the bucket of a key argument, the
 * exact value of an argument that the code depends on, the value of a constant. */
void silo_tagged_extra(struct silo_tagged *tagged);

/* Adds the extents that the guard compares, and `grid` (three dimensions, or NULL), to `key`. */
int silo_tagged_extents(struct silo_tagged *tagged, const int64_t *grid, silo_error *error);

/* Encodes a constant as two words. Returns false if it is a text without a number. */
bool silo_tagged_constant(const struct silo_texts *texts, const silo_argument *argument,
                          uint64_t word[2]);

/* Returns the strides of an array or descriptor. If it has none, writes the strides of a contiguous
 * array to `room`, which has SILO_MAX_AXES items. */
const int64_t *silo_tagged_strides(const silo_argument *argument, int64_t *room);

/* Reads all arguments of a call into `slots` and `key`. Returns 0, or -1 with `error` filled. */
SILO_INLINE int silo_tagged_read(struct silo_tagged *tagged, silo_error *error) {
    const struct silo_intake *intake = tagged->intake;
    for (int32_t i = 0; i < intake->count; i++) {
        const struct silo_parameter *parameter = &intake->parameters[i];
        const silo_argument *argument = &tagged->arguments[i];
        if (SILO_LIKELY(i < tagged->argument_count)) {
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
