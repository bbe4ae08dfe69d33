/* Checks calls from Python against a bundle's kernels, and chooses among the variants: converts
 * Python objects for the functions of native/core/held.h and choice.h. A call and a device are
 * tuples:
 *
 *   call    (arguments, options, grid or None, text for a call that gives no grid and needs one)
 *   argument (kind, DLPack type code, bits, flags, block or None, extents, value): kinds and flags
 *           as in argument_word.h; extents are None, (shape, strides or None), or an int made by
 *           silo_dynamic_word; value is the value of a scalar or a constexpr, else None
 *   device  (target, {fact: number}, rules); a rule is (target, blob kind, runs, reason): whether
 *           the device itself runs code of this kind for this target, and why not */
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
