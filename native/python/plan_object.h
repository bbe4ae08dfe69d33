/* The type LaunchPlan, whose calls replay a recorded sequence of launches with other arguments. */
#ifndef SILO_PLAN_OBJECT_H
#define SILO_PLAN_OBJECT_H

#include "python.h"

int silo_plan_object_init(PyObject *module);

#endif
