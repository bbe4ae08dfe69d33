/* The type Launcher. */
#ifndef SILO_LAUNCHER_TYPE_H
#define SILO_LAUNCHER_TYPE_H

#include "python.h"

extern PyTypeObject *silo_launcher_type;

int silo_launcher_init(PyObject *module);

#endif
