/* Reads Python numbers from objects that hold one. */
#ifndef SILO_SCALARS_H
#define SILO_SCALARS_H

#include "adapters.h"
#include "python.h"

/* Interns the names of attributes; -1 with an exception set. */
int silo_scalars_init(void);

/* Returns the int, float or bool that a scalar of another library or a 0-d array on the host holds
 * (new reference); NULL with an exception set. */
PyObject *silo_number_of(PyObject *object, const struct silo_adapter *adapter);

#endif
