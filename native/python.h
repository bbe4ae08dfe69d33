/* Python's stable ABI (3.11), plus the type and the flag of the vectorcall protocol, which CPython
 * has had since 3.9 and shows in the limited API from 3.12 on; the whole API where Python has no
 * GIL. Include this before any other header. */
#ifndef SILO_PYTHON_H
#define SILO_PYTHON_H

#define PY_SSIZE_T_CLEAN
#if !defined(Py_LIMITED_API) &&                                                                    \
    !defined(Py_GIL_DISABLED) /* a build without a GIL has no limited API */
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#endif

/* An argument slot holds a value in its low bytes whatever its width. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Silo runs on little-endian machines");
_Static_assert(sizeof(void *) == 8, "Silo runs on 64-bit machines");

#define SILO_LIKELY(x) __builtin_expect(!!(x), 1)
#define SILO_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SILO_INLINE static inline __attribute__((always_inline))
#define SILO_NOINLINE __attribute__((noinline))
/* On the way of every launch: such functions are laid out beside each other. */
#define SILO_HOT __attribute__((hot))

/* Parameters a kernel may have; the per-call state of that many lies on the stack. */
#define SILO_MAX_PARAMETERS 256
#define SILO_MAX_OPTIONS 32

#endif
