/* The parameters of a binary, and how each is made from the arguments of a call. */
#ifndef SILO_PACKING_H
#define SILO_PACKING_H

#include "descriptor.h"
#include "driver.h"
#include "dtypes.h"
#include "struct_form.h"
#include "tensor_map.h"

/* How one parameter is made. */
enum silo_pack {
    SILO_PACK_SLOT, /* the low bytes of the slot */
    SILO_PACK_FP32, /* the slot holds a double */
    SILO_PACK_FP16,
    SILO_PACK_BF16,
    SILO_PACK_SCRATCH, /* the address of scratch memory taken for this launch */
    SILO_PACK_PROFILE,
    SILO_PACK_DESCRIPTOR, /* a part of a tensor descriptor */
    SILO_PACK_STRUCT,     /* address, extents and strides of an array, by value */
    SILO_PACK_ARRAY_MAP,  /* the tensor map of an array */
};

/* The binary's parameter in that place; checked when a binding enters the guard table. */
enum silo_abi {
    SILO_ABI_POINTER,
    SILO_ABI_BOOL,
    SILO_ABI_INT,
    SILO_ABI_UINT,
    SILO_ABI_FLOAT,
    SILO_ABI_NULL,
    SILO_ABI_DESCRIPTOR,
    SILO_ABI_STRUCT,
    SILO_ABI_ARRAY, /* an array with an address and a shape, of which a map is made */
};

/* Structs of one binary: their words lie on the stack of a launch. */
#define SILO_MAX_STRUCTS 64

/* Bytes of a struct by value: of all parameters of a kernel on GPUs since CUDA 12.1. */
#define SILO_MAX_STRUCT 32764

/* The slot that holds zero: a null pointer, for scratch memory that is not used. */
#define SILO_SLOT_NULL (-1)

struct silo_packed {
    int16_t slot;   /* index of the launcher's parameter, or SILO_SLOT_NULL */
    uint8_t pack;   /* enum silo_pack */
    uint8_t abi;    /* enum silo_abi */
    uint8_t bits;   /* of the ABI type */
    uint8_t writes; /* the kernel writes through this pointer */
    /* Only for a descriptor: */
    uint8_t part; /* enum silo_part */
    uint8_t axis; /* axis of a shape or stride; or the index of a tensor map or of a struct of the
                     packing */
    uint8_t rank;
    /* Only for a member of a struct that is passed by value, as one parameter: */
    uint16_t member_at;   /* its offset */
    uint16_t struct_size; /* bytes of the struct; 0: a parameter of its own */
};

/* All parameters of a binary, in its order. Never changes once it is made. */
struct silo_packing {
    uint32_t count;
    uint32_t room; /* the number of places in `params` of silo_pack: `count`, then its structs */
    bool takes_scratch; /* some parameter is SILO_PACK_SCRATCH or SILO_PACK_PROFILE */
    bool gathers; /* some are members of structs: the binary has fewer parameters than `count` */
    uint32_t gather_at;         /* the word of `params` behind which these structs are written */
    struct silo_packed *packed; /* owned */
    struct silo_map_form *maps; /* owned; NULL: none */
    struct silo_struct_form *structs; /* owned; NULL: none */
};

/* ---- how one is made ---- */

/* One parameter of a binary, as its maker describes it. */
struct silo_layout_item {
    const char *type; /* "ptr", "i1", "i8" to "u64", "fp16" to "fp64", "scratch", "profile", or
                         "tensormap", "struct", "empty" */
    const char *part; /* of a descriptor: "base", "shape.0", ...; of a struct by value
                         "member.OFFSET.SIZE"; NULL: neither */
    int32_t slot;     /* index of the launcher's parameter; unused for scratch memory */
    uint32_t rank;    /* of the descriptor of a part */
    bool writes;      /* the kernel writes through it */
    const struct silo_map_form *map;     /* how a "tensormap" is encoded; else NULL */
    const struct silo_struct_form *form; /* the members of a "struct"; else NULL */
};

/* A packing of `count` parameters of `function`, which states whether it needs scratch memory. -1
 * with SILO_ERROR_MEMORY, or with SILO_ERROR_UNSUPPORTED and the fault; then `*wrong` is the number
 * of the faulty item, -1: none. Clear it either way. */
int silo_packing_init(struct silo_packing *packing, const struct silo_layout_item *items,
                      size_t count, const struct silo_function *function, int32_t *wrong,
                      silo_error *error);
void silo_packing_clear(struct silo_packing *packing);

/* Bytes of a packed parameter's value, without padding. */
uint32_t silo_packed_bytes(const struct silo_packing *packing, const struct silo_packed *packed);

/* ---- the needs of a binary ---- */

/* Whether an argument with this word can be passed in that place. An argument that its word leaves
 * open (the value of an int64 that a kernel takes as int32) is refused: the binding will serve
 * every later call with the same word. */
bool silo_packed_fits(const struct silo_packed *packed, uint64_t code);

/* The expected argument, for people: "an array", "an int32". `buffer` of 64 bytes is used or not.
 * */
const char *silo_packed_noun(const struct silo_packed *packed, char *buffer, size_t size);

/* Whether arguments fit, by their words, one a parameter of the launcher. 0; or -1 with `*index`
 * the parameter and `*wanted` its need ("an int32"); NULL: unknown parameter, because the packing
 * was made for another launcher. */
int silo_packing_check(const struct silo_packing *packing, const uint64_t *codes, int32_t count,
                       char *buffer, size_t size, int32_t *index, const char **wanted);

/* Whether every call of these parameters fits, by their declared types alone, so that none needs a
 * guard. 0; or -1 with `*index` the first that does not. */
int silo_packing_check_declared(const struct silo_packing *packing,
                                const struct silo_parameter *parameters, int32_t count,
                                int32_t *index);

/* ---- a call ---- */

/* A call's data about its arguments. */
struct silo_values {
    uint64_t *slots;   /* one a parameter: integers sign-extended, floats as doubles, addresses, the
                          index of a descriptor; slots[SILO_SLOT_NULL] is 0 */
    uint64_t *scratch; /* addresses of scratch and profiling memory */
    struct silo_descriptor *descriptors;
    /* For each parameter: number of axes, extents and strides of an array whose layout the guard
     * holds; empty for others. NULL: for no parameter. */
    const uint64_t *const *layouts;
};

/* The address of the encoded map of the descriptor or array of parameter `slot`, as long as the
 * launch needs it; NULL: no map, and the function keeps the reason. */
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

/* Write a struct behind the parameters; its address, or NULL if it cannot be written. */
SILO_INLINE void *silo_pack_struct(const struct silo_packing *packing,
                                   const struct silo_packed *packed,
                                   const struct silo_values *values, void **params) {
    void *to = params + packing->count + (size_t)packed->axis * SILO_STRUCT_WORDS;
    const uint64_t *layout = values->layouts != NULL ? values->layouts[packed->slot] : NULL;
    const uint64_t address = values->slots[packed->slot];
    return silo_struct_write(&packing->structs[packed->axis], address, layout, to) ? to : NULL;
}

/* Whether packed parameter `i` begins a struct by value: the members of one follow each other with
 * rising offsets. */
SILO_INLINE bool silo_begins_struct(const struct silo_packing *packing, uint32_t i) {
    const struct silo_packed *own = &packing->packed[i], *before = own - 1;
    return own->struct_size != 0 && (i == 0 || before->struct_size != own->struct_size ||
                                     own->member_at <= before->member_at);
}

/* Join the members of structs by value: afterwards `params` has the binary's own parameters. */
void silo_pack_gather(const struct silo_packing *packing, void **params);

/* Point `params` (`room` of the packing) at the values of a launch. They are in the memory of
 * `values`: floats are narrowed in their slots, which are not read afterwards. SILO_ALL_PACKED; or
 * the number of a parameter without a map: `map` returned NULL, or the descriptor or the array has
 * other axes (silo_pack_refuse; only a call without a guard gets there). */
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

/* The error of parameter `number` if the descriptor or the array has other axes:
 * SILO_ERROR_SHAPE; -1. */
int silo_pack_refuse(const struct silo_packing *packing, const struct silo_values *values,
                     int32_t number, const char *kernel, const char *argument, silo_error *error);

#endif
