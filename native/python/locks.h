/* Locks for data that the GIL protects in other builds: they exist only in free-threaded Python
 * (Py_GIL_DISABLED) and cost nothing with a GIL.
 *
 * A lock is held for a few instructions; never while Python code or a driver runs. */
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
