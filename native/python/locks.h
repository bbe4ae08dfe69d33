/* What the GIL protects, for builds of Python without one (Py_GIL_DISABLED). With a GIL, nothing.
 *
 * Held for a few instructions; never while Python code or a driver runs. */
#ifndef SILO_LOCKS_H
#define SILO_LOCKS_H

#include "python.h"

#ifdef Py_GIL_DISABLED
typedef PyMutex silo_lock;
#define SILO_LOCK(lock) PyMutex_Lock(lock)
#define SILO_UNLOCK(lock) PyMutex_Unlock(lock)
#else
typedef uint8_t silo_lock;
#define SILO_LOCK(lock) ((void)(lock))
#define SILO_UNLOCK(lock) ((void)(lock))
#endif

#endif
