/* Tensor descriptors made on the host: objects with a base array, a shape, strides and a block
 * shape. A kernel takes one as a tensor map (128 bytes that the driver encodes), its shape and its
 * strides, or taken apart if the target lacks tensor maps. */
#ifndef SILO_DESCRIPTOR_OBJECT_H
#define SILO_DESCRIPTOR_OBJECT_H

#include "descriptor.h"
#include "python.h"
#include "shape.h"

/* Whose a descriptor of a call is. */
struct silo_descriptor_owner {
    PyObject *object; /* borrowed from the call */
    PyObject *base;   /* borrowed from objects that the call holds */
};

/* Fill in only the shape and strides of a descriptor, for grids. -1 with an exception set. */
int silo_descriptor_shape(PyObject *object, struct silo_shape *shape);

/* ---- attributes of an object ---- */

/* A descriptor, and its dictionary: a look-up there is cheaper than an attribute of the object,
 * which is read if the entry is missing. */
struct silo_members {
    PyObject *object; /* borrowed */
    PyObject *dict;   /* owned; NULL: none */
    bool asked;       /* an attribute of the object was read, which may run code of its class */
};

struct silo_members silo_members_of(PyObject *object);

/* A new reference, or NULL with an exception set. */
PyObject *silo_descriptor_base(struct silo_members *members);

/* Integers; their number, or -1 with an exception set. */
int silo_descriptor_extents(struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_strides(struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_block(struct silo_members *members, int64_t values[SILO_MAX_RANK]);

/* Whether elements outside are NaN, and whether float32 is rounded to tf32: 1 or 0; -1 with an
 * exception set. */
int silo_descriptor_pads(struct silo_members *members);
int silo_descriptor_rounds(struct silo_members *members);

/* The layout in bits of an argument's word (SILO_BLOCK_LAYOUT_SHIFT), 0 for None; -1 with an
 * exception set, also for a layout that no tensor map has. */
int silo_descriptor_layout(struct silo_members *members);
/* Whether descriptors of a class have one. Never leaves an exception. */
bool silo_descriptors_have_layouts(PyObject *type);

/* Whether descriptors of a class have an attribute round_f32_to_tf32. Never leaves an exception. */
bool silo_descriptors_round(PyObject *type);

/* The object kept on it: a new reference, or NULL with an exception set. */
PyObject *silo_descriptor_kept(struct silo_members *members);
int silo_descriptor_keep(PyObject *object, PyObject *map);

/* Raise "KERNEL: the tensor descriptor 'NAME' ...", with an exception already set as its cause; -1.
 */
int silo_refuse_descriptor(PyObject *kernel, PyObject *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Interned names; -1 with an exception set. */
int silo_descriptor_init(void);

#endif
