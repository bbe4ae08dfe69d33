/* Calls of a torch operator that skip torch's dispatcher if it would only run the operator's
 * kernel: OperatorCall makes torch's checks and the output, launches, and counts the writes,
 * without a Python frame. */
#ifndef SILO_OPERATOR_CALL_H
#define SILO_OPERATOR_CALL_H

#include "python.h"

int silo_operator_call_init(PyObject *module); /* adds the type OperatorCall */

#endif
