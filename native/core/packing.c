#include "packing.h"

#include "shape.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    uint8_t abi, bits, pack;
} abi_types[] = {
    {"ptr", SILO_ABI_POINTER, 64, SILO_PACK_SLOT},
    {"i1", SILO_ABI_BOOL, 8, SILO_PACK_SLOT},
    {"i8", SILO_ABI_INT, 8, SILO_PACK_SLOT},
    {"i16", SILO_ABI_INT, 16, SILO_PACK_SLOT},
    {"i32", SILO_ABI_INT, 32, SILO_PACK_SLOT},
    {"i64", SILO_ABI_INT, 64, SILO_PACK_SLOT},
    {"u8", SILO_ABI_UINT, 8, SILO_PACK_SLOT},
    {"u16", SILO_ABI_UINT, 16, SILO_PACK_SLOT},
    {"u32", SILO_ABI_UINT, 32, SILO_PACK_SLOT},
    {"u64", SILO_ABI_UINT, 64, SILO_PACK_SLOT},
    {"fp16", SILO_ABI_FLOAT, 16, SILO_PACK_FP16},
    {"bf16", SILO_ABI_FLOAT, 16, SILO_PACK_BF16},
    {"fp32", SILO_ABI_FLOAT, 32, SILO_PACK_FP32},
    {"fp64", SILO_ABI_FLOAT, 64, SILO_PACK_SLOT},
    {"scratch", SILO_ABI_NULL, 64, SILO_PACK_SCRATCH},
    {"profile", SILO_ABI_NULL, 64, SILO_PACK_PROFILE},
    {"empty", SILO_ABI_NULL, 8, SILO_PACK_SLOT},
};

/* ---- making ---- */

static bool is_slot(int32_t slot) {
    return slot >= 0 && slot < SILO_MAX_PARAMETERS;
}

static struct silo_packed descriptor_part(const struct silo_layout_item *item, uint8_t part,
                                          uint8_t axis, uint32_t rank) {
    return (struct silo_packed){.slot = (int16_t)item->slot,
                                .pack = SILO_PACK_DESCRIPTOR,
                                .abi = SILO_ABI_DESCRIPTOR,
                                .bits = 64,
                                .writes = item->writes,
                                .part = part,
                                .axis = axis,
                                .rank = (uint8_t)rank};
}

/* Fills `out` for a parameter that is a part of a descriptor other than its tensor map. */
static int take_part(const struct silo_layout_item *item, struct silo_packed *out,
                     silo_error *error) {
    uint8_t axis;
    const int part = silo_part_named(item->part, &axis);
    if (part < 0 || !is_slot(item->slot) || item->rank < 1 || item->rank > SILO_MAX_RANK ||
        axis >= item->rank)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a part of a tensor descriptor");
    *out = descriptor_part(item, (uint8_t)part, axis, item->rank);
    return 0;
}

/* Fills `out` for a parameter that is the tensor map of a descriptor or an array, and stores the
 * map's form as number `index` in packing->maps. */
static int take_map(struct silo_packing *packing, const struct silo_layout_item *item,
                    uint8_t index, struct silo_packed *out, silo_error *error) {
    const struct silo_map_form *form = item->map;
    bool good = item->type != NULL && strcmp(item->type, "tensormap") == 0 && is_slot(item->slot) &&
                form->rank >= 1 && form->rank <= SILO_MAX_RANK;
    for (uint32_t i = 0; good && i < form->rank; i++)
        good = form->box[i] >= 1 && form->box[i] <= 256 && /* the driver's limits */
               form->axes[i] >= SILO_NO_AXIS && form->axes[i] < SILO_MAX_AXES &&
               form->element_bytes != 0;
    if (!good)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a tensor map");
    uint32_t others = 0;
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *other = &packing->packed[i];
        others += other->part == SILO_PART_MAP && other->slot == item->slot &&
                  (other->pack == SILO_PACK_DESCRIPTOR || other->pack == SILO_PACK_ARRAY_MAP);
    }
    if (!form->of_array && others != 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "two tensor maps of one parameter");
    if (others >= SILO_MAX_ARRAY_MAPS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "three tensor maps of one array");
    packing->maps[index] = *form;
    *out = descriptor_part(item, SILO_PART_MAP, index, form->rank);
    if (form->of_array) {
        out->pack = SILO_PACK_ARRAY_MAP;
        out->abi = SILO_ABI_ARRAY;
    }
    return 0;
}

/* Fills `out` for a struct, and stores the struct's form as number `index` in packing->structs. */
static int take_struct(struct silo_packing *packing, const struct silo_layout_item *item,
                       uint8_t index, struct silo_packed *out, silo_error *error) {
    if (strcmp(item->type, "struct") != 0 || !is_slot(item->slot) || item->form->count == 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a struct of an array");
    packing->structs[index] = *item->form;
    *out = (struct silo_packed){.slot = (int16_t)item->slot,
                                .pack = SILO_PACK_STRUCT,
                                .abi = SILO_ABI_STRUCT,
                                .bits = 64,
                                .writes = item->writes,
                                .axis = index,
                                .rank = item->form->axes};
    return 0;
}

/* Whether the launch must allocate `bytes` bytes of scratch memory: only on a GPU, and only if
 * `bytes` is not 0. */
static bool takes(const struct silo_function *function, uint64_t bytes) {
    return function->device != NULL && bytes > 0;
}

static int take_plain(const struct silo_layout_item *item, const struct silo_function *function,
                      struct silo_packed *out, silo_error *error) {
    for (size_t i = 0; i < sizeof abi_types / sizeof *abi_types; i++) {
        if (strcmp(abi_types[i].name, item->type) != 0)
            continue;
        const bool hidden = abi_types[i].abi == SILO_ABI_NULL;
        if (!hidden && !is_slot(item->slot))
            break;
        *out = (struct silo_packed){.slot = hidden ? SILO_SLOT_NULL : (int16_t)item->slot,
                                    .pack = abi_types[i].pack,
                                    .abi = abi_types[i].abi,
                                    .bits = abi_types[i].bits,
                                    .writes = item->writes};
        if ((out->pack == SILO_PACK_SCRATCH && !takes(function, function->scratch_bytes)) ||
            (out->pack == SILO_PACK_PROFILE && !takes(function, function->profile_bytes)))
            /* the memory is not used, so that a null pointer is passed */
            out->pack = SILO_PACK_SLOT;
        return 0;
    }
    return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a parameter of a kernel's binary");
}

/* Reads "member.OFFSET.SIZE"; -1 if a part has another form. */
static int read_member(const char *part, struct silo_packed *out) {
    unsigned offset, size;
    char behind;
    if (sscanf(part, "member.%5u.%5u%c", &offset, &size, &behind) != 2 || size == 0 ||
        size > SILO_MAX_STRUCT || offset >= size)
        return -1;
    out->member_at = (uint16_t)offset;
    out->struct_size = (uint16_t)size;
    return 0;
}

/* Fills `out` for a member of a struct by value: a plain parameter that silo_pack_gather copies
 * into the struct. */
static int take_member(const struct silo_layout_item *item, const struct silo_function *function,
                       struct silo_packed *out, silo_error *error) {
    if (take_plain(item, function, out, error) != 0)
        return -1;
    if (out->abi == SILO_ABI_NULL || read_member(item->part, out) != 0 ||
        out->member_at + (out->bits <= 8 ? 1u : out->bits / 8u) > out->struct_size)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "not a member of a struct by value");
    return 0;
}

static bool is_member(const char *part) {
    return strncmp(part, "member.", 7) == 0;
}

/* Reserves words in `params` for the structs by value, after all other parameters. */
static void make_room(struct silo_packing *packing) {
    packing->gather_at = packing->room;
    for (uint32_t i = 0; i < packing->count; i++) {
        if (silo_begins_struct(packing, i))
            packing->room += (packing->packed[i].struct_size + 7u) / 8u;
        packing->gathers |= packing->packed[i].struct_size != 0;
    }
}

void silo_pack_gather(const struct silo_packing *packing, void **params) {
    uint8_t *next = (uint8_t *)(params + packing->gather_at), *to = NULL;
    uint32_t gathered = 0;
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *packed = &packing->packed[i];
        void *const value = params[i];
        if (packed->struct_size == 0) {
            params[gathered++] = value;
            continue;
        }
        if (silo_begins_struct(packing, i)) {
            to = next;
            next += (packed->struct_size + 7u) / 8u * 8u;
            /* padding is zero, so that it is equal in all launches */
            memset(to, 0, packed->struct_size);
            params[gathered++] = to;
        }
        memcpy(to + packed->member_at, value, silo_packed_bytes(packing, packed));
    }
}

int silo_packing_init(struct silo_packing *packing, const struct silo_layout_item *items,
                      size_t count, const struct silo_function *function, int32_t *wrong,
                      silo_error *error) {
    memset(packing, 0, sizeof *packing);
    *wrong = -1;
    if (count > SILO_MAX_PARAMETERS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "a binary with too many parameters");
    size_t map_count = 0, structs = 0;
    for (size_t i = 0; i < count; i++) {
        map_count += items[i].map != NULL;
        structs += items[i].form != NULL;
    }
    if (map_count > SILO_MAX_DESCRIPTORS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "a binary with too many tensor maps");
    if (structs > SILO_MAX_STRUCTS)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED, "a binary with too many structs");
    packing->room = (uint32_t)(count + 1 + structs * SILO_STRUCT_WORDS);
    packing->packed = calloc(count + 1, sizeof *packing->packed);
    packing->maps = map_count != 0 ? calloc(map_count, sizeof *packing->maps) : NULL;
    packing->structs = structs != 0 ? calloc(structs, sizeof *packing->structs) : NULL;
    if (packing->packed == NULL || (map_count != 0 && packing->maps == NULL) ||
        (structs != 0 && packing->structs == NULL))
        return silo_fail_memory(error);
    uint8_t maps = 0, forms = 0;
    for (size_t i = 0; i < count; i++) {
        const struct silo_layout_item *item = &items[i];
        struct silo_packed *packed = &packing->packed[i];
        const bool member = item->part != NULL && is_member(item->part);
        const int result = item->map != NULL    ? take_map(packing, item, maps++, packed, error)
                           : item->form != NULL ? take_struct(packing, item, forms++, packed, error)
                           : member             ? take_member(item, function, packed, error)
                           : item->part != NULL ? take_part(item, packed, error)
                                                : take_plain(item, function, packed, error);
        if (result != 0) {
            *wrong = (int32_t)i;
            return -1;
        }
        packing->takes_scratch |=
            packed->pack == SILO_PACK_SCRATCH || packed->pack == SILO_PACK_PROFILE;
        packing->count = (uint32_t)i + 1;
    }
    make_room(packing);
    return 0;
}

void silo_packing_clear(struct silo_packing *packing) {
    free(packing->packed);
    free(packing->maps);
    free(packing->structs);
    memset(packing, 0, sizeof *packing);
}

/* ---- the parameters of a binary ---- */

uint32_t silo_packed_bytes(const struct silo_packing *packing, const struct silo_packed *packed) {
    if (packed->pack == SILO_PACK_STRUCT)
        return packing->structs[packed->axis].bytes;
    if (packed->pack == SILO_PACK_ARRAY_MAP ||
        (packed->pack == SILO_PACK_DESCRIPTOR && packed->part == SILO_PART_MAP))
        return SILO_MAP_BYTES;
    return packed->bits <= 8 ? 1 : packed->bits / 8U;
}

const char *silo_packed_noun(const struct silo_packed *packed, char *buffer, size_t size) {
    switch ((enum silo_abi)packed->abi) {
    case SILO_ABI_POINTER:
    case SILO_ABI_ARRAY:
        return "an array";
    case SILO_ABI_BOOL:
        return "a bool";
    case SILO_ABI_INT:
        snprintf(buffer, size, "an int%u", packed->bits);
        return buffer;
    case SILO_ABI_UINT:
        snprintf(buffer, size, "a uint%u", packed->bits);
        return buffer;
    case SILO_ABI_FLOAT:
        snprintf(buffer, size, "a %u-bit float", packed->bits);
        return buffer;
    case SILO_ABI_DESCRIPTOR:
        snprintf(buffer, size, "a tensor descriptor of %u dimensions", packed->rank);
        return buffer;
    case SILO_ABI_STRUCT:
        snprintf(buffer, size, "an array of at least %u dimensions", packed->rank);
        return buffer;
    case SILO_ABI_NULL:
        break;
    }
    return "nothing";
}

bool silo_packed_fits(const struct silo_packed *packed, uint64_t code) {
    const unsigned kind = silo_code_kind(code), bits = silo_code_bits(code);
    const bool is_unsigned = silo_code_type(code) == SILO_UINT;
    switch ((enum silo_abi)packed->abi) {
    case SILO_ABI_POINTER:
        return kind == SILO_VALUE_POINTER || kind == SILO_VALUE_ADDRESS || kind == SILO_VALUE_NONE;
    case SILO_ABI_BOOL:
        return kind == SILO_VALUE_BOOL;
    case SILO_ABI_INT:
        /* A uint64 argument above INT64_MAX is passed to an int64 parameter with the same bits, as
         * Triton does. */
        return kind == SILO_VALUE_BOOL ||
               (kind == SILO_VALUE_INT &&
                (bits < packed->bits || (bits == packed->bits && (!is_unsigned || bits == 64))));
    case SILO_ABI_UINT:
        return kind == SILO_VALUE_BOOL || (kind == SILO_VALUE_INT && bits <= packed->bits);
    case SILO_ABI_FLOAT:
        return kind == SILO_VALUE_FLOAT;
    case SILO_ABI_DESCRIPTOR:
        return kind == SILO_VALUE_DESCRIPTOR && silo_block_rank(code) == packed->rank;
    case SILO_ABI_STRUCT:
    case SILO_ABI_ARRAY:
        return kind == SILO_VALUE_POINTER;
    case SILO_ABI_NULL:
        break;
    }
    return true;
}

/* Whether the kernel would write a read-only array. */
static bool writes_readonly(const struct silo_packed *packed, uint64_t code) {
    const unsigned kind = silo_code_kind(code);
    return packed->writes && (kind == SILO_VALUE_POINTER || kind == SILO_VALUE_DESCRIPTOR) &&
           (code & SILO_FLAG_READONLY);
}

int silo_packing_check(const struct silo_packing *packing, const uint64_t *codes, int32_t count,
                       char *buffer, size_t size, int32_t *index, const char **expected) {
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *packed = &packing->packed[i];
        if (packed->abi == SILO_ABI_NULL)
            continue;
        *index = packed->slot;
        *expected = NULL;
        if (packed->slot >= count)
            return -1;
        if (!silo_packed_fits(packed, codes[packed->slot]))
            *expected = silo_packed_noun(packed, buffer, size);
        else if (writes_readonly(packed, codes[packed->slot]))
            *expected = "a writable array, for the kernel writes it (this one is read-only)";
        if (*expected != NULL)
            return -1;
    }
    return 0;
}

/* Returns the guard word, without flags, that every argument of the parameter's declared type has;
 * 0 if the declaration does not determine the word. */
static uint64_t declared_code(const struct silo_parameter *parameter) {
    const struct silo_dtype type = parameter->type;
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        return SILO_CODE(SILO_VALUE_POINTER, 0, 0, 0);
    case SILO_PARAMETER_INT:
        return type.bits ? SILO_CODE(SILO_VALUE_INT, type.code, type.bits, 0) : 0;
    case SILO_PARAMETER_FLOAT:
        return SILO_CODE(SILO_VALUE_FLOAT, SILO_FLOAT, 32, 0);
    case SILO_PARAMETER_BOOL:
        return silo_bool_word();
    case SILO_PARAMETER_DESCRIPTOR:
        return SILO_CODE(SILO_VALUE_DESCRIPTOR, 0, 0, 0);
    case SILO_PARAMETER_ANY:
    case SILO_PARAMETER_CONSTEXPR:
        break;
    }
    return 0;
}

int silo_packing_check_declared(const struct silo_packing *packing,
                                const struct silo_parameter *parameters, int32_t count,
                                int32_t *index) {
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *packed = &packing->packed[i];
        if (packed->abi == SILO_ABI_NULL)
            continue;
        const struct silo_parameter *parameter =
            packed->slot < count ? &parameters[packed->slot] : NULL;
        uint64_t code = parameter ? declared_code(parameter) : 0;
        if (silo_code_kind(code) == SILO_VALUE_DESCRIPTOR)
            /* The word gets the expected rank; each call checks the rank of its descriptor. */
            code |= (uint64_t)packed->rank << SILO_BLOCK_SHIFT;
        if (code == 0 || !silo_packed_fits(packed, code) ||
            (packed->writes && !(parameter->flags & SILO_PARAMETER_WRITES))) {
            *index = packed->slot;
            return -1;
        }
    }
    return 0;
}

int silo_pack_refuse(const struct silo_packing *packing, const struct silo_values *values,
                     int32_t number, const char *kernel, const char *argument, silo_error *error) {
    const struct silo_packed *packed = &packing->packed[number];
    if (packed->pack == SILO_PACK_STRUCT)
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "%s: the extents and strides of '%s' are passed to this code, which takes "
                         "an array of at least %u dimensions whose numbers fit the types that it "
                         "was compiled for",
                         kernel, argument, packed->rank);
    return silo_fail(error, SILO_ERROR_SHAPE,
                     "%s: the tensor descriptor '%s' has %u dimensions; this code takes one of %u",
                     kernel, argument, values->descriptors[values->slots[packed->slot]].rank,
                     packed->rank);
}
