/* Packing: how each parameter of a binary is made from the arguments of a call. */
#ifndef SILO_PACKING_H
#define SILO_PACKING_H

#include "descriptor.h"
#include "driver.h"
#include "dtypes.h"
#include "struct_form.h"
#include "tensor_map.h"

/* How a parameter of a binary is made from the arguments of a call. */
enum silo_pack {
    SILO_PACK_SLOT, /* the low bytes of the argument's 64-bit value */
    SILO_PACK_FP32, /* the argument's value is a double, which is narrowed */
    SILO_PACK_FP16,
    SILO_PACK_BF16,
    SILO_PACK_SCRATCH, /* address of scratch memory allocated for this launch */
    SILO_PACK_PROFILE,
    SILO_PACK_DESCRIPTOR, /* a part of a tensor descriptor */
    SILO_PACK_STRUCT,     /* a struct by value: address, extents and strides of an array */
    SILO_PACK_ARRAY_MAP,  /* the tensor map of an array */
};

/* The kind of argument that a parameter of the binary needs. The arguments of a call are checked
 * against it before loaded code is added to the guard's table. */
enum silo_abi {
    SILO_ABI_POINTER,
    SILO_ABI_BOOL,
    SILO_ABI_INT,
    SILO_ABI_UINT,
    SILO_ABI_FLOAT,
    SILO_ABI_NULL,
    SILO_ABI_DESCRIPTOR,
    SILO_ABI_STRUCT,
    SILO_ABI_ARRAY, /* an array with address and shape, for a tensor map */
};

/* The most structs of a binary: a launch keeps their words on the stack. */
#define SILO_MAX_STRUCTS 64

/* The most bytes of a struct by value: the limit for all parameters of a GPU kernel since CUDA
 * 12.1. */
#define SILO_MAX_STRUCT 32764

/* The value of `slot` for a parameter that no argument fills: slots[SILO_SLOT_NULL] holds 0, the
 * null pointer that is passed for scratch memory that is not used. */
#define SILO_SLOT_NULL (-1)

struct silo_packed {
    int16_t slot;   /* index of the kernel's parameter, or SILO_SLOT_NULL */
    uint8_t pack;   /* enum silo_pack */
    uint8_t abi;    /* enum silo_abi */
    uint8_t bits;   /* size of the ABI type */
    uint8_t writes; /* the kernel writes through this pointer */
    /* Used only for parts of a descriptor, tensor maps and structs: */
    uint8_t part; /* enum silo_part */
    uint8_t axis; /* axis of an extent or stride; for a tensor map or a struct, its index in `maps`
                     or `structs` */
    uint8_t rank;
    /* Used only for members of a struct by value, which is a single parameter of the binary: */
    uint16_t member_at;   /* offset of the member */
    uint16_t struct_size; /* bytes of the struct; 0: not a member */
};

/* All parameters of a binary in order. Constant once it is made. */
struct silo_packing {
    uint32_t count;
    uint32_t room; /* words needed in `params` of silo_pack: `count`, plus the words of the structs
                      by value */
    bool takes_scratch; /* some parameter is made by SILO_PACK_SCRATCH or SILO_PACK_PROFILE */
    bool gathers; /* some entries are members of structs, so that the binary has fewer parameters
                     than `count` */
    uint32_t gather_at;               /* index in `params` of the first word for structs by value */
    struct silo_packed *packed;       /* owned */
    struct silo_map_form *maps;       /* owned; NULL if there are none */
    struct silo_struct_form *structs; /* owned; NULL if there are none */
};

/* ---- making a packing ---- */

/* A parameter of a binary, as silo_packing_init receives it. */
struct silo_layout_item {
    const char *type; /* "ptr", "i1", "i8" to "u64", "fp16" to "fp64", "scratch", "profile", or
                         "tensormap", "struct", "empty" */
    const char *part; /* part of a descriptor ("base", "shape.0", ...) or member of a struct by
                         value ("member.OFFSET.SIZE"); else NULL */
    int32_t slot;     /* index of the kernel's parameter; unused for scratch memory */
    uint32_t rank;    /* for a part of a descriptor: the descriptor's rank */
    bool writes;      /* the kernel writes through this parameter */
    const struct silo_map_form *map;     /* encoding of a "tensormap"; else NULL */
    const struct silo_struct_form *form; /* members of a "struct"; else NULL */
};

/* Makes a packing of `count` parameters for `function`, which gives the sizes of scratch memory.
 * Returns -1 with SILO_ERROR_MEMORY, or with SILO_ERROR_UNSUPPORTED and `*wrong` as the number of
 * the invalid item (-1 if the fault is not in an item). After success and after failure, the caller
 * must release `packing` with silo_packing_clear. */
int silo_packing_init(struct silo_packing *packing, const struct silo_layout_item *items,
                      size_t count, const struct silo_function *function, int32_t *wrong,
                      silo_error *error);
void silo_packing_clear(struct silo_packing *packing);

/* Returns the bytes of a parameter's value, without padding. */
uint32_t silo_packed_bytes(const struct silo_packing *packing, const struct silo_packed *packed);

/* ---- checking arguments ---- */

/* Whether an argument with this guard word can be passed as this parameter. Returns false if that
 * depends on more than the word (for example on the value of an int64 that is passed as int32),
 * because the binding serves all later calls with the same word. */
bool silo_packed_fits(const struct silo_packed *packed, uint64_t code);

/* Returns the expected argument for messages: "an array", "an int32". May use `buffer`, which has
 * 64 bytes. */
const char *silo_packed_noun(const struct silo_packed *packed, char *buffer, size_t size);

/* Checks the guard words of all arguments, one for each parameter of the kernel. Returns 0; or -1
 * with the parameter in `*index` and the expected argument in `*expected` ("an int32"), which is
 * NULL if the kernel has no such parameter. */
int silo_packing_check(const struct silo_packing *packing, const uint64_t *codes, int32_t count,
                       char *buffer, size_t size, int32_t *index, const char **expected);

/* Checks that all arguments that the parameters' declared types allow can be passed to the binary,
 * so that calls need no guard. Returns 0, or -1 with the first parameter that does not fit in
 * `*index`. */
int silo_packing_check_declared(const struct silo_packing *packing,
                                const struct silo_parameter *parameters, int32_t count,
                                int32_t *index);

/* ---- packing the parameters of a call ---- */

/* The values of a call's arguments. */
struct silo_values {
    uint64_t *slots; /* for each parameter: an integer sign-extended, a float as double, an address,
                        or the index of a descriptor; slots[SILO_SLOT_NULL] is 0 */
    uint64_t *scratch; /* addresses of scratch and profiling memory */
    struct silo_descriptor *descriptors;
    /* For each parameter: number of axes, extents and strides if it is an array whose layout the
     * guard compares or the code takes as parameters; else NULL. May be NULL as a whole. */
    const uint64_t *const *layouts;
};

/* Returns the address of the encoded tensor map for the descriptor or array of parameter `slot`,
 * valid for the launch. After an error it returns NULL and stores the reason in `context`. */
typedef void *silo_map_function(void *context, int32_t slot, const struct silo_map_form *form);

#define SILO_ALL_PACKED (-1)

SILO_INLINE void *silo_pack_part(const struct silo_packing *packing,
                                 const struct silo_packed *packed, const struct silo_values *values,
                                 silo_map_function *map, void *context) {
    struct silo_descriptor *descriptor = &values->descriptors[values->slots[packed->slot]];
    if (SILO_UNLIKELY(descriptor->rank != packed->rank))
        return NULL;
    if (packed->part == SILO_PART_MAP)
        return map(context, packed->slot, &packing->maps[packed->axis]);
    return silo_descriptor_part(descriptor, packed->part, packed->axis);
}

/* Writes a struct to the words after the parameters. Returns its address, or NULL if it cannot be
 * written. */
SILO_INLINE void *silo_pack_struct(const struct silo_packing *packing,
                                   const struct silo_packed *packed,
                                   const struct silo_values *values, void **params) {
    void *to = params + packing->count + (size_t)packed->axis * SILO_STRUCT_WORDS;
    const uint64_t *layout = values->layouts != NULL ? values->layouts[packed->slot] : NULL;
    const uint64_t address = values->slots[packed->slot];
    return silo_struct_write(&packing->structs[packed->axis], address, layout, to) ? to : NULL;
}

/* Whether entry `i` is the first member of a struct by value. The members of a struct are adjacent,
 * with increasing offsets. */
SILO_INLINE bool silo_begins_struct(const struct silo_packing *packing, uint32_t i) {
    const struct silo_packed *item = &packing->packed[i], *previous = item - 1;
    return item->struct_size != 0 && (i == 0 || previous->struct_size != item->struct_size ||
                                      item->member_at <= previous->member_at);
}

/* Copies the members of each struct by value into that struct. Afterwards `params` has the
 * parameters of the binary. */
void silo_pack_gather(const struct silo_packing *packing, void **params);

/* Fills `params` (of packing->room words) with pointers to the values of a launch. The values stay
 * in the memory of `values`: floats are narrowed in their slots, which must not be read afterwards.
 * Returns SILO_ALL_PACKED, or the number of a parameter that cannot be made: `map` returned NULL,
 * or the number of axes or a value of the descriptor or array does not fit the binary (see
 * silo_pack_refuse; possible only in calls without a guard). */
SILO_INLINE int32_t silo_pack(const struct silo_packing *packing, const struct silo_values *values,
                              void **params, silo_map_function *map, void *context) {
    for (uint32_t i = 0; i < packing->count; i++) {
        const struct silo_packed *packed = &packing->packed[i];
        uint64_t *slot = &values->slots[packed->slot];
        params[i] = slot;
        if (SILO_LIKELY(packed->pack == SILO_PACK_SLOT))
            continue;
        double value;
        memcpy(&value, slot, sizeof value);
        switch ((enum silo_pack)packed->pack) {
        case SILO_PACK_FP32: {
            const float narrow = (float)value;
            memcpy(slot, &narrow, sizeof narrow);
            break;
        }
        case SILO_PACK_FP16:
            *slot = silo_fp16_bits(value);
            break;
        case SILO_PACK_BF16:
            *slot = silo_bf16_bits(value);
            break;
        case SILO_PACK_SCRATCH:
            params[i] = &values->scratch[0];
            break;
        case SILO_PACK_PROFILE:
            params[i] = &values->scratch[1];
            break;
        case SILO_PACK_DESCRIPTOR:
            params[i] = silo_pack_part(packing, packed, values, map, context);
            if (SILO_UNLIKELY(params[i] == NULL))
                return (int32_t)i;
            break;
        case SILO_PACK_STRUCT:
            params[i] = silo_pack_struct(packing, packed, values, params);
            if (SILO_UNLIKELY(params[i] == NULL))
                return (int32_t)i;
            break;
        case SILO_PACK_ARRAY_MAP:
            params[i] = map(context, packed->slot, &packing->maps[packed->axis]);
            if (SILO_UNLIKELY(params[i] == NULL))
                return (int32_t)i;
            break;
        case SILO_PACK_SLOT:
            break;
        }
    }
    if (SILO_UNLIKELY(packing->gathers))
        silo_pack_gather(packing, params);
    return SILO_ALL_PACKED;
}

/* Fills `error` with SILO_ERROR_SHAPE for parameter `number`, whose descriptor or array does not
 * fit the binary: it has another number of axes, or extents or strides that are too large. Returns
 * -1. */
int silo_pack_refuse(const struct silo_packing *packing, const struct silo_values *values,
                     int32_t number, const char *kernel, const char *argument, silo_error *error);

#endif
