/* Arrays that describe themselves in `__cuda_array_interface__`. */
#ifndef SILO_CUDA_DICT_H
#define SILO_CUDA_DICT_H

#include "shape_source.h"
#include "view.h"

/* Interned names; -1 with an exception set. */
int silo_cuda_dict_init(void);

/* The contents of an object's dictionary without the device: 1, or 0 without a shape; -1 with an
 * exception set, for example for an impossible shape. */
int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape);

/* The device of the array, by its address. */
void silo_cuda_dict_place(struct silo_view *view);

#endif
