/* Checks calls from Python against a bundle's kernels, and chooses among the variants:
 * native/core/held.h and choice.h for Python objects. A call and a device are tuples:
 *
 *   call    (arguments, options, grid or None, text for a call that gives no grid and needs one)
 *   argument (kind, DLPack type code, bits, flags, block or None, extents, value): kinds and flags
 *           as in argument_word.h; extents are None, (shape, strides or None), or the word of a
 *           dynamic layout; value is that of a scalar or a constexpr, else None
 *   device  (target, {fact: number}, rules), with a rule (target, blob kind, runs, reason) for code
 *           that the device decides on by itself */
#ifndef SILO_BUNDLE_CHOICE_H
#define SILO_BUNDLE_CHOICE_H

#include "python.h"

extern const char silo_py_rank_variants_doc[];
extern const char silo_py_decide_variants_doc[];
extern const char silo_py_held_doc[];
extern const char silo_py_runs_on_doc[];

PyObject *silo_py_rank_variants(PyObject *module, PyObject *args);
PyObject *silo_py_decide_variants(PyObject *module, PyObject *args);
PyObject *silo_py_held(PyObject *module, PyObject *args);
PyObject *silo_py_runs_on(PyObject *module, PyObject *args);

#endif
