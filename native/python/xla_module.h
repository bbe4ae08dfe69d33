/* Connects XLA's programs to Python, which makes a struct silo_xla_call when a program first needs
 * it. */
#ifndef SILO_XLA_MODULE_H
#define SILO_XLA_MODULE_H

#include "python.h"

int silo_xla_init(PyObject *module); /* adds xla_keep, xla_handlers and xla_connect */

#endif
