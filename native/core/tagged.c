#include "tagged.h"

#include "shape.h"
#include "tagged_error.h"

const silo_argument *silo_tagged_argument(const struct silo_tagged *tagged, int32_t index) {
    if (index < tagged->argument_count && tagged->arguments[index].kind != SILO_ARGUMENT_ABSENT)
        return &tagged->arguments[index];
    return &tagged->intake->defaults[index];
}

const int64_t *silo_tagged_strides(const silo_argument *argument, int64_t *room) {
    if (argument->strides != NULL)
        return argument->strides;
    silo_shape_compact(argument->shape, argument->rank, room);
    return room;
}

/* ---- scalars ---- */

static int read_integer(struct silo_tagged *tagged, int32_t index, const silo_argument *argument,
                        silo_error *error) {
    const struct silo_parameter *parameter = &tagged->intake->parameters[index];
    tagged->key[index] = silo_integer_word(parameter, argument->value.integer);
    if (tagged->key[index] == 0)
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND, NULL, error);
    tagged->slots[index] = (uint64_t)argument->value.integer;
    return 0;
}

static void store_float(struct silo_tagged *tagged, int32_t index, double value) {
    memcpy(&tagged->slots[index], &value, sizeof value);
    tagged->key[index] = silo_float_word(&tagged->intake->parameters[index]);
}

static void store_bool(struct silo_tagged *tagged, int32_t index, bool value) {
    tagged->slots[index] = value;
    tagged->key[index] = silo_bool_word();
}

/* Reads an integer, bool or float. A bool is accepted as 0 or 1 for a parameter that takes a
 * number, and the integers 0 and 1 for a parameter that takes a bool; any other number for a bool
 * is an error. */
static int read_number(struct silo_tagged *tagged, int32_t index, const silo_argument *argument,
                       silo_error *error) {
    const bool whole = argument->kind != SILO_ARGUMENT_FLOAT;
    switch ((enum silo_parameter_kind)tagged->intake->parameters[index].kind) {
    case SILO_PARAMETER_INT:
        if (whole)
            return read_integer(tagged, index, argument, error);
        break;
    case SILO_PARAMETER_FLOAT:
        store_float(tagged, index, whole ? (double)argument->value.integer : argument->value.real);
        return 0;
    case SILO_PARAMETER_BOOL:
        if (whole && (argument->value.integer == 0 || argument->value.integer == 1)) {
            store_bool(tagged, index, argument->value.integer == 1);
            return 0;
        }
        break;
    case SILO_PARAMETER_ANY:
        if (!whole)
            store_float(tagged, index, argument->value.real);
        else if (argument->kind == SILO_ARGUMENT_BOOL)
            store_bool(tagged, index, argument->value.integer != 0);
        else
            return read_integer(tagged, index, argument, error);
        return 0;
    case SILO_PARAMETER_POINTER:
    case SILO_PARAMETER_CONSTEXPR:
    case SILO_PARAMETER_DESCRIPTOR:
        break;
    }
    return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND, NULL, error);
}

/* ---- arrays ---- */

/* Whether the memory of an array is known to be smaller than 2 GiB. */
static bool in_range32(const silo_argument *argument) {
    int64_t room[SILO_MAX_AXES];
    if (argument->flags & SILO_ARGUMENT_RANGE32)
        return true;
    if (argument->kind != SILO_ARGUMENT_ARRAY)
        return false;
    return silo_shape_in_range32(argument->shape, silo_tagged_strides(argument, room),
                                 argument->rank, (argument->element & 0xff) / 8);
}

/* Checks an array or a descriptor: its element type, and that a kernel does not write a read-only
 * array. */
static int check_memory(const struct silo_tagged *tagged, int32_t index,
                        const silo_argument *argument, silo_error *error) {
    const struct silo_parameter *parameter = &tagged->intake->parameters[index];
    if (silo_tagged_check(tagged->intake, index, argument, error) != 0)
        return -1;
    if (parameter->type.bits != 0 &&
        argument->element != (parameter->type.code << 8 | parameter->type.bits))
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_DTYPE, NULL, error);
    if ((argument->flags & SILO_ARGUMENT_READONLY) && (parameter->flags & SILO_PARAMETER_WRITES))
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND,
                                "a writable array, for the kernel writes it", error);
    return 0;
}

static int read_array(struct silo_tagged *tagged, int32_t index, const silo_argument *argument,
                      silo_error *error) {
    const struct silo_parameter *parameter = &tagged->intake->parameters[index];
    if (parameter->kind > SILO_PARAMETER_POINTER)
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND, NULL, error);
    if (check_memory(tagged, index, argument, error) != 0)
        return -1;
    const uint64_t address = (uint64_t)(uintptr_t)argument->value.pointer;
    unsigned flags = silo_address_flags(parameter, address, argument->element & 0xff);
    if (argument->flags & SILO_ARGUMENT_READONLY)
        flags |= SILO_FLAG_READONLY;
    if (tagged->device == SILO_ROCM && (parameter->flags & SILO_PARAMETER_SPECIALIZE) &&
        in_range32(argument))
        flags |= SILO_FLAG_RANGE32;
    tagged->slots[index] = address;
    tagged->key[index] =
        SILO_CODE(SILO_VALUE_POINTER, argument->element >> 8, argument->element & 0xff, flags);
    return 0;
}

/* ---- tensor descriptors ---- */

static int read_descriptor(struct silo_tagged *tagged, int32_t index, const silo_argument *argument,
                           silo_error *error) {
    const struct silo_intake *intake = tagged->intake;
    const unsigned kind = intake->parameters[index].kind;
    uint64_t block = 0;
    if (kind != SILO_PARAMETER_DESCRIPTOR && kind != SILO_PARAMETER_ANY)
        return silo_tagged_fail(intake, index, argument, SILO_ERROR_KIND, NULL, error);
    if (tagged->descriptors_used == SILO_MAX_DESCRIPTORS)
        return silo_tagged_refuse(intake, index, SILO_ERROR_USAGE, error,
                                  "is one too many: a call has at most %d", SILO_MAX_DESCRIPTORS);
    if (check_memory(tagged, index, argument, error) != 0)
        return -1;
    if (argument->rank < 1 || argument->rank > SILO_MAX_RANK)
        return silo_tagged_refuse(intake, index, SILO_ERROR_SHAPE, error,
                                  "has %d dimensions; there are 1 to %d", (int)argument->rank,
                                  SILO_MAX_RANK);
    struct silo_descriptor *descriptor = &tagged->descriptors[tagged->descriptors_used];
    int64_t room[SILO_MAX_AXES];
    const size_t bytes = (size_t)argument->rank * sizeof *descriptor->shape;
    memset(descriptor, 0, sizeof *descriptor);
    descriptor->address = (uint64_t)(uintptr_t)argument->value.pointer;
    descriptor->rank = (uint32_t)argument->rank;
    descriptor->nan = (argument->flags & SILO_ARGUMENT_PAD_NAN) != 0;
    descriptor->tf32 = (argument->flags & SILO_ARGUMENT_ROUND_TF32) != 0;
    memcpy(descriptor->shape, argument->shape, bytes);
    memcpy(descriptor->strides, silo_tagged_strides(argument, room), bytes);
    const struct silo_dtype type = {(uint8_t)(argument->element >> 8), (uint8_t)argument->element};
    silo_error failure = {.details = NULL};
    if (argument->block == NULL)
        return silo_tagged_refuse(intake, index, SILO_ERROR_USAGE, error, "has no block shape");
    if (silo_descriptor_check(descriptor, type, &failure) != 0 ||
        silo_descriptor_block_bits(argument->block, descriptor->rank, &block, &failure) != 0)
        return silo_tagged_refuse(intake, index, failure.code, error, "%s", failure.text);
    tagged->slots[index] = tagged->descriptors_used++;
    tagged->key[index] =
        SILO_CODE(SILO_VALUE_DESCRIPTOR, argument->element >> 8, argument->element & 0xff,
                  SILO_FLAG_ALIGNED16 |
                      (argument->flags & SILO_ARGUMENT_READONLY ? SILO_FLAG_READONLY : 0U)) |
        block;
    return 0;
}

/* ---- constants ---- */

bool silo_tagged_constant(const struct silo_texts *texts, const silo_argument *argument,
                          uint64_t word[2]) {
    unsigned tag = SILO_TAG_DEFAULT;
    word[1] = 0;
    switch (argument->kind) {
    case SILO_ARGUMENT_INT:
        tag = SILO_TAG_INT;
        word[1] = (uint64_t)argument->value.integer;
        break;
    case SILO_ARGUMENT_BOOL:
        tag = SILO_TAG_BOOL;
        word[1] = argument->value.integer != 0;
        break;
    case SILO_ARGUMENT_FLOAT:
        tag = SILO_TAG_FLOAT;
        memcpy(&word[1], &argument->value.real, sizeof word[1]);
        break;
    case SILO_ARGUMENT_NONE:
        tag = SILO_TAG_NONE;
        break;
    case SILO_ARGUMENT_TYPE:
        tag = SILO_TAG_TYPE;
        word[1] = argument->element;
        break;
    case SILO_ARGUMENT_TEXT:
        tag = SILO_TAG_TEXT;
        word[1] = silo_texts_find(texts, argument->value.text);
        break;
    default:
        break;
    }
    word[0] = SILO_CODE(SILO_VALUE_CONSTANT, tag, 0, 0);
    return !(tag == SILO_TAG_TEXT && word[1] == SILO_NO_TEXT);
}

/* Stores the constant's value in the slot, from which silo_tagged_extra copies it to the key. */
static int read_constant(struct silo_tagged *tagged, int32_t index, const silo_argument *argument,
                         silo_error *error) {
    uint64_t word[2];
    if (silo_tagged_check(tagged->intake, index, argument, error) != 0)
        return -1;
    if (argument->kind == SILO_ARGUMENT_POINTER || argument->kind == SILO_ARGUMENT_ARRAY ||
        argument->kind == SILO_ARGUMENT_DESCRIPTOR)
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND, NULL, error);
    if (!silo_tagged_constant(tagged->texts, argument, word))
        tagged->new_text = true;
    tagged->key[index] = word[0];
    tagged->slots[index] = word[1];
    return 0;
}

/* ---- arguments of any kind ---- */

int silo_tagged_other(struct silo_tagged *tagged, int32_t index, silo_error *error) {
    const struct silo_intake *intake = tagged->intake;
    const struct silo_parameter *parameter = &intake->parameters[index];
    const silo_argument *argument = silo_tagged_argument(tagged, index);
    const bool is_passed = argument != &intake->defaults[index];
    if (!is_passed && (parameter->flags & SILO_PARAMETER_OPTIONAL)) {
        tagged->slots[index] = 0;
        tagged->key[index] = SILO_CODE(SILO_VALUE_ABSENT, 0, 0, 0);
        return 0;
    }
    if (!is_passed && !intake->names[index].has_default)
        return silo_tagged_missing(intake, tagged->arguments, (size_t)tagged->argument_count,
                                   error);
    if (parameter->kind == SILO_PARAMETER_CONSTEXPR)
        return read_constant(tagged, index, argument, error);
    switch (argument->kind) {
    case SILO_ARGUMENT_POINTER:
    case SILO_ARGUMENT_ARRAY:
        return read_array(tagged, index, argument, error);
    case SILO_ARGUMENT_DESCRIPTOR:
        return read_descriptor(tagged, index, argument, error);
    case SILO_ARGUMENT_INT:
    case SILO_ARGUMENT_BOOL:
    case SILO_ARGUMENT_FLOAT:
        return read_number(tagged, index, argument, error);
    case SILO_ARGUMENT_NONE:
        if (parameter->kind <= SILO_PARAMETER_POINTER) {
            tagged->slots[index] = 0;
            tagged->key[index] = SILO_CODE(SILO_VALUE_NONE, 0, 0, 0);
            return 0;
        }
        break;
    default:
        break;
    }
    return silo_tagged_fail(intake, index, argument, SILO_ERROR_KIND, NULL, error);
}

void silo_tagged_extra(struct silo_tagged *tagged) {
    for (int32_t i = 0; i < tagged->intake->count; i++) {
        const struct silo_parameter *parameter = &tagged->intake->parameters[i];
        if (parameter->kind == SILO_PARAMETER_CONSTEXPR)
            tagged->key[tagged->words++] = tagged->slots[i];
        else if (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT))
            tagged->key[tagged->words++] =
                silo_key_word(parameter, tagged->key[i], tagged->slots[i]);
    }
}

/* ---- extents ---- */

/* Refuses an array that is not contiguous, and an address, whose layout is unknown. */
static int check_contiguous(const struct silo_tagged *tagged, int32_t index,
                            const silo_argument *argument, silo_error *error) {
    const unsigned kind = silo_code_kind(tagged->key[index]);
    int64_t room[SILO_MAX_AXES];
    if ((kind != SILO_VALUE_POINTER && kind != SILO_VALUE_DESCRIPTOR) ||
        argument->kind == SILO_ARGUMENT_POINTER || argument->rank == 0 ||
        silo_extent_contiguous(argument->rank, argument->shape,
                               silo_tagged_strides(argument, room)))
        return 0;
    return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_SHAPE,
                            SILO_CONTIGUOUS_WORDS, error);
}

static int read_extents(struct silo_tagged *tagged, int32_t index, silo_error *error) {
    const silo_argument *argument = silo_tagged_argument(tagged, index);
    const unsigned kind = silo_code_kind(tagged->key[index]);
    uint64_t *words = tagged->key + tagged->words;
    int64_t room[SILO_MAX_AXES];
    const unsigned extent = tagged->intake->extents[index];
    if (extent == SILO_EXTENT_CONTIGUOUS)
        return check_contiguous(tagged, index, argument, error);
    if (kind != SILO_VALUE_POINTER && kind != SILO_VALUE_DESCRIPTOR) {
        words[0] = SILO_EXTENTS_NONE;
        tagged->words++;
        return 0;
    }
    if (argument->kind == SILO_ARGUMENT_POINTER)
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_KIND,
                                "an array, whose shape decides the code of this kernel", error);
    const int64_t *shape = room, *strides = room;
    if (argument->rank != 0) {
        shape = argument->shape;
        strides = silo_tagged_strides(argument, room);
    }
    if (extent != SILO_EXTENT_DYNAMIC) {
        tagged->words += silo_extent_words_of_array(extent, argument->rank, shape, strides, words);
        if (extent == SILO_EXTENT_LAYOUT)
            tagged->layouts[index] = words;
        return 0;
    }
    if (argument->rank > SILO_DYNAMIC_AXES)
        return silo_tagged_fail(tagged->intake, index, argument, SILO_ERROR_SHAPE,
                                "an array of up to 5 dimensions, which are passed to this kernel",
                                error);
    const unsigned bits = silo_code_bits(tagged->key[index]);
    words[0] = silo_dynamic_word(argument->rank, shape, strides, bits);
    tagged->words++;
    tagged->layouts[index] = tagged->passed;
    tagged->passed += silo_extent_words_of_array(SILO_EXTENT_LAYOUT, argument->rank, shape, strides,
                                                 tagged->passed);
    return 0;
}

int silo_tagged_extents(struct silo_tagged *tagged, const int64_t *grid, silo_error *error) {
    const struct silo_intake *intake = tagged->intake;
    if (intake->grid)
        tagged->words += silo_extent_words_of_grid(grid, tagged->key + tagged->words);
    for (int32_t i = 0; intake->some_extents && i < intake->count; i++) {
        tagged->layouts[i] = NULL;
        if (intake->extents[i] != SILO_EXTENT_FREE && read_extents(tagged, i, error) != 0)
            return -1;
    }
    return 0;
}
