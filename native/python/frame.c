#include "frame.h"

#include "errors.h"

int silo_read_error(const struct silo_plan *plan, int32_t index, PyObject *object) {
    char expected[160];
    const struct silo_parameter *parameter = &plan->parameters[index];
    return silo_bad_argument(plan->kernel, plan->names[index],
                             silo_parameter_noun(parameter, expected, sizeof expected), object);
}
