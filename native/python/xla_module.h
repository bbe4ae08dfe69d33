/* What Python does with calls from XLA's programs: it makes them on request. */
#ifndef SILO_XLA_MODULE_H
#define SILO_XLA_MODULE_H

#include "python.h"

int silo_xla_init(PyObject *module); /* xla_keep, xla_handlers, xla_connect */

#endif
