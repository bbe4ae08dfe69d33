/* Reads arrays that describe themselves in `__cuda_array_interface__`. */
#ifndef SILO_CUDA_DICT_H
#define SILO_CUDA_DICT_H

#include "shape_source.h"
#include "view.h"

/* Interns the names of attributes; -1 with an exception set. */
int silo_cuda_dict_init(void);

/* Reads all of an object's dictionary into `view` and `shape`. The dictionary does not name the
 * device. Returns 1, or 0 if it has no shape; -1 with an exception set, for example for an
 * impossible shape. */
int silo_cuda_dict_read(PyObject *object, struct silo_view *view, struct silo_shape *shape);

/* Fills in the device of the array, which follows from its address. */
void silo_cuda_dict_place(struct silo_view *view);

#endif
