/* Scratch memory of a launch, from an allocator written in Python. */
#ifndef SILO_ALLOCATOR_H
#define SILO_ALLOCATOR_H

#include "frame.h"
#include "kernel.h"

/* Sets the callable allocate(bytes, alignment, kind, index, stream) -> (owner, address). Without
 * one (None), launches that need scratch memory fail. */
int silo_allocator_set(PyObject *allocate);

/* Takes the scratch memory that the binding's kernel needs for `dims` programs. The addresses go to
 * frame->scratch, and the owners (Python objects that keep the memory alive) to frame->holds; the
 * owners are released after the launch, and their memory may then be reused only by later work of
 * the same stream. `own_allocator`, if not NULL, is called in place of the allocator of
 * silo_allocator_set. Returns -1 with an exception set. */
int silo_allocator_take(const struct silo_plan *plan, const struct silo_binding *binding,
                        const int64_t dims[3], void *stream, PyObject *own_allocator,
                        struct silo_frame *frame);

#endif
