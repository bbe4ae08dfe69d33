/* Tensor descriptors made on the host: Python objects with a base array, a shape, strides and a
 * block shape. A kernel receives a descriptor as a tensor map (128 bytes that the driver encodes),
 * its shape and its strides; on a target without tensor maps it receives the parts as separate
 * arguments. */
#ifndef SILO_DESCRIPTOR_OBJECT_H
#define SILO_DESCRIPTOR_OBJECT_H

#include "descriptor.h"
#include "python.h"
#include "shape.h"

/* The Python objects of one tensor descriptor of a call. */
struct silo_descriptor_owner {
    PyObject *object; /* the descriptor, borrowed from the call */
    PyObject *base;   /* its base array, borrowed from objects that the call holds */
};

/* Fills in only the shape and strides of a descriptor, for grids. Returns -1 with an exception set.
 */
int silo_descriptor_shape(PyObject *object, struct silo_shape *shape);

/* ---- attributes of an object ---- */

/* A descriptor and its dictionary. A look-up in the dictionary is cheaper than an attribute of the
 * object, which is read if the dictionary lacks the name. */
struct silo_members {
    PyObject *object; /* borrowed */
    PyObject *dict;   /* owned; NULL if the object lacks one */
    bool ran_python;  /* an attribute of the object was read, which may have run Python code of its
                       * class
                       */
};

struct silo_members silo_members_of(PyObject *object);

/* Returns the base array, a new reference, or NULL with an exception set. */
PyObject *silo_descriptor_base(struct silo_members *members);

/* Read the descriptor's shape and its strides. Each returns the number of integers, or -1 with an
 * exception set. */
int silo_descriptor_extents(struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_strides(struct silo_members *members, int64_t values[SILO_MAX_RANK]);
int silo_descriptor_block(struct silo_members *members, int64_t values[SILO_MAX_RANK]);

/* `pads` returns 1 if elements outside the array read as NaN, 0 if as zero; `rounds` returns 1 if
 * float32 is rounded to tf32. Both return -1 with an exception set. */
int silo_descriptor_pads(struct silo_members *members);
int silo_descriptor_rounds(struct silo_members *members);

/* Returns the layout as bits of an argument's key word (SILO_BLOCK_LAYOUT_SHIFT), 0 for None.
 * Returns -1 with an exception set, also for a layout that no tensor map has. */
int silo_descriptor_layout(struct silo_members *members);
/* Returns whether descriptors of a class have a layout; never leaves an exception. */
bool silo_descriptors_have_layouts(PyObject *type);

/* Returns whether descriptors of a class have an attribute round_f32_to_tf32; never leaves an
 * exception. */
bool silo_descriptors_round(PyObject *type);

/* The first returns the map that the second stored on the descriptor: a new reference, or NULL with
 * an exception set. */
PyObject *silo_descriptor_stored_map(struct silo_members *members);
int silo_descriptor_keep(PyObject *object, PyObject *map);

/* Raises "KERNEL: the tensor descriptor 'NAME' ...", with an exception that is already set as its
 * cause. Returns -1. */
int silo_refuse_descriptor(PyObject *kernel, PyObject *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Interns the names of attributes; -1 with an exception set. */
int silo_descriptor_init(void);

#endif
