/* Includes Python's stable ABI (3.11), and declares the type and the flag of the vectorcall
 * protocol, which CPython has since 3.9 but the limited API only from 3.12 on. Free-threaded builds
 * use the whole API. Include this header before any other. */
#ifndef SILO_PYTHON_H
#define SILO_PYTHON_H

#define PY_SSIZE_T_CLEAN
#if !defined(Py_LIMITED_API) &&                                                                    \
    !defined(Py_GIL_DISABLED) /* free-threaded builds lack the limited API */
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <structmember.h>

#include "base.h"

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#endif

#endif
