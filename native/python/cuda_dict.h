/* Arrays that describe themselves in `__cuda_array_interface__`. */
#ifndef SILO_CUDA_DICT_H
#define SILO_CUDA_DICT_H

#include "shape_source.h"
#include "view.h"

/* Interned names; -1 with an exception set. */
int silo_cuda_dict_init(void);

/* What an object's dictionary says, but for the device: 1, or 0 where it says no shape; -1 with an
 * exception set, as where the shape cannot be. */
int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape);

/* The device of such an array, by its address. */
void silo_cuda_dict_place(struct silo_view *view);

#endif
