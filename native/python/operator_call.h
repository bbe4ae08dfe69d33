/* Calls of an operator of torch for which torch only has to run its kernel: the checks of torch,
 * the output, the launch and the count of writes, without a Python frame. */
#ifndef SILO_OPERATOR_CALL_H
#define SILO_OPERATOR_CALL_H

#include "python.h"

int silo_operator_call_init(PyObject *module); /* OperatorCall */

#endif
