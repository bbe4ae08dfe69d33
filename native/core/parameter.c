#include "parameter.h"

#include "dlpack.h"

#include <stdio.h>

const char *silo_parameter_noun(const struct silo_parameter *parameter, char *buffer, size_t size) {
    const char *name = parameter->type.bits ? silo_dtype_name(parameter->type) : NULL;
    const unsigned bits = parameter->type.bits;
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        snprintf(buffer, size, "%s%s array%s",
                 parameter->flags & SILO_PARAMETER_WRITES ? "a writable " : "a ",
                 name ? name : "kernel's", name ? "" : " (any dtype)");
        break;
    case SILO_PARAMETER_INT:
        if (bits == 0)
            snprintf(buffer, size, "an integer of at most 64 bits");
        else if (parameter->type.code == SILO_UINT)
            snprintf(buffer, size, "%s in [0, %llu]", name ? name : "an integer",
                     (unsigned long long)(UINT64_MAX >> (64 - bits)));
        else
            snprintf(buffer, size, "%s in [%lld, %lld]", name ? name : "an integer",
                     (long long)(INT64_MIN >> (64 - bits)), (long long)(INT64_MAX >> (64 - bits)));
        break;
    case SILO_PARAMETER_FLOAT:
        snprintf(buffer, size, "a number for a %s", name ? name : "float");
        break;
    case SILO_PARAMETER_BOOL:
        snprintf(buffer, size, "a bool");
        break;
    case SILO_PARAMETER_CONSTEXPR:
        snprintf(buffer, size, "a hashable constexpr value");
        break;
    case SILO_PARAMETER_DESCRIPTOR:
        snprintf(buffer, size, "a tensor descriptor%s%s", name ? " of " : "", name ? name : "");
        break;
    case SILO_PARAMETER_ANY:
        snprintf(buffer, size,
                 "an array of numbers or bools, a number of at most 64 bits, a bool or None");
        break;
    }
    return buffer;
}
