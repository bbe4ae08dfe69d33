/* Scratch memory of a launch, from an allocator written in Python. */
#ifndef SILO_ALLOCATOR_H
#define SILO_ALLOCATOR_H

#include "frame.h"
#include "kernel.h"

/* allocate(bytes, alignment, kind, index, stream) -> (owner, address), or None: launches that need
 * scratch memory fail. */
int silo_allocator_set(PyObject *allocate);

/* Take the memory that the binding's kernel needs for `dims` programs; frame->scratch gets the
 * addresses and frame->holds the owners, which are released after the launch: the memory must then
 * be reusable only by later work of the same stream. `own` is called in place of the allocator that
 * was set; NULL: the latter. -1 with an exception set. */
int silo_allocator_take(const struct silo_plan *plan, const struct silo_binding *binding,
                        const int64_t dims[3], void *stream, PyObject *own,
                        struct silo_frame *frame);

#endif
