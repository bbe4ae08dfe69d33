/* Numbers out of objects that hold one. */
#ifndef SILO_SCALARS_H
#define SILO_SCALARS_H

#include "adapters.h"
#include "python.h"

/* Interned names; -1 with an exception set. */
int silo_scalars_init(void);

/* The Python number behind a scalar of another library or a 0-d array on the host (new reference):
 * an int, float or bool. NULL with an exception set. */
PyObject *silo_number_of(PyObject *object, const struct silo_adapter *adapter);

#endif
