/* Tensor descriptors made on the host: objects with a base array, a shape, strides and a block
 * shape. A kernel takes one as a tensor map (128 bytes that the driver encodes), its shape and its
 * strides, or, where the target has no tensor maps, taken apart. */
#ifndef SILO_DESCRIPTOR_OBJECT_H
#define SILO_DESCRIPTOR_OBJECT_H

#include "python.h"
#include "shape_source.h"

#define SILO_MAX_RANK 5
/* Of one call; 32 tensor maps fill the 4 KiB of parameters that every driver takes. */
#define SILO_MAX_DESCRIPTORS 32

/* What one descriptor of a call says, as the parameters of a kernel need it. */
struct silo_descriptor {
    uint64_t address; /* of the base, a multiple of 16 */
    uint64_t nan;     /* 1: what lies outside is NaN, 0: zero */
    uint64_t tf32;    /* 1: float32 is rounded to tf32 when it is loaded */
    int64_t shape[SILO_MAX_RANK];
    int64_t strides[SILO_MAX_RANK]; /* in elements; the last is 1 */
    uint32_t rank;
    PyObject *object; /* borrowed from the call */
    PyObject *base;   /* borrowed from what the call holds */
};

/* How the map of one kernel parameter is encoded, besides what the descriptor says. */
struct silo_map_form {
    int32_t element_type; /* CUtensorMapDataType */
    uint32_t element_bytes;
    int32_t swizzle; /* CUtensorMapSwizzle */
    uint32_t rank;
    uint32_t box[SILO_MAX_RANK]; /* elements, outermost first */
    uint32_t fp4_padded;         /* 0 or 1 */
};

/* The guard word of a descriptor holds its rank in bits 24-26 and the logarithm of each extent of
 * its block in 5 bits above, outermost first. */
#define SILO_BLOCK_SHIFT 24
#define SILO_BLOCK_MASK UINT64_C(0xfffffff)

SILO_INLINE uint32_t silo_block_word(uint64_t code) {
    return (uint32_t)(code >> SILO_BLOCK_SHIFT & SILO_BLOCK_MASK);
}

SILO_INLINE uint32_t silo_block_rank(uint64_t code) {
    return silo_block_word(code) & 7;
}

/* Which part of a descriptor a parameter of a binary is. */
enum silo_part {
    SILO_PART_MAP,
    SILO_PART_BASE,
    SILO_PART_SHAPE,
    SILO_PART_STRIDE,
    SILO_PART_NAN,
    SILO_PART_TF32,
};

/* -1 where there is no such part. `axis` gets its axis. */
int silo_part_named(const char *name, uint8_t *axis);

/* Its shape and strides alone, for grids. -1 with an exception set. */
int silo_descriptor_shape(PyObject *object, struct silo_shape *shape);

/* The value of any other part. */
SILO_INLINE void *silo_descriptor_part(struct silo_descriptor *descriptor, unsigned part,
                                       unsigned axis) {
    switch ((enum silo_part)part) {
    case SILO_PART_SHAPE:
        return &descriptor->shape[axis];
    case SILO_PART_STRIDE:
        return &descriptor->strides[axis];
    case SILO_PART_NAN:
        return &descriptor->nan;
    case SILO_PART_TF32:
        return &descriptor->tf32;
    case SILO_PART_MAP:
    case SILO_PART_BASE:
        break;
    }
    return &descriptor->address;
}

/* ---- what an object says ---- */

/* A descriptor, and its dictionary: looking there is cheaper than asking the object, which is asked
 * for what is not there. */
struct silo_members {
    PyObject *object; /* borrowed */
    PyObject *dict;   /* owned; NULL: none */
};

struct silo_members silo_members_of(PyObject *object);

/* A new reference, or NULL with an exception set. */
PyObject *silo_descriptor_base(const struct silo_members *members);

/* Integers; their number, or -1 with an exception set. */
int silo_descriptor_extents(const struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_strides(const struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_block(const struct silo_members *members, int64_t values[SILO_MAX_RANK]);

/* Whether what lies outside is NaN, and whether float32 is rounded to tf32: 1 or 0; -1 with an
 * exception set. */
int silo_descriptor_pads(const struct silo_members *members);
int silo_descriptor_rounds(const struct silo_members *members);

/* Whether descriptors of a class say the latter. Never leaves an exception. */
bool silo_descriptors_round(PyObject *type);

/* What is kept on it: a new reference, or NULL with an exception set. */
PyObject *silo_descriptor_kept(const struct silo_members *members);
int silo_descriptor_keep(PyObject *object, PyObject *map);

/* Raise "KERNEL: the tensor descriptor 'NAME' ...", with an exception already set as its cause; -1.
 */
int silo_refuse_descriptor(PyObject *kernel, PyObject *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Interned names; -1 with an exception set. */
int silo_descriptor_init(void);

#endif
