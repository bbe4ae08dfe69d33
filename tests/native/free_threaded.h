/* Declarations that the headers of CPython 3.13 without a GIL have and older headers lack. With
 * them a compiler can check the source of a free-threaded build without such a Python. Nothing is
 * linked. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030d0000
typedef struct {
    unsigned char bits;
} PyMutex;
void PyMutex_Lock(PyMutex *mutex);
void PyMutex_Unlock(PyMutex *mutex);
int PyDict_GetItemRef(PyObject *dict, PyObject *key, PyObject **result);
int PyWeakref_GetRef(PyObject *reference, PyObject **result);
int PyUnstable_Module_SetGIL(PyObject *module, void *gil);
#define Py_MOD_GIL_NOT_USED ((void *)1)
#endif
