/* The kernels of an exported bundle, for calls from other frameworks: a description of each kernel,
 * and the functions that the export's shared library offers to the framework libraries next to it.
 *
 * The export generates a table of `struct silo_framework_kernel`. From it, tvm_ffi.c makes TVM-FFI
 * functions, and torch_op.h custom operators of torch. */
#ifndef SILO_FRAMEWORK_H
#define SILO_FRAMEWORK_H

#include "silo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a value of another framework becomes an argument of the kernel. */
enum silo_framework_kind {
    SILO_FRAMEWORK_VALUE = 0,      /* with the value's own type */
    SILO_FRAMEWORK_FLOAT = 1,      /* as a float; an integer is converted */
    SILO_FRAMEWORK_DESCRIPTOR = 2, /* as a tensor descriptor, made from a tensor */
};

/* A parameter that callers pass. Parameters that the tuned config sets are left out. */
struct silo_framework_parameter {
    const char *name;
    uint16_t place; /* index among all parameters of the kernel; ascending */
    uint8_t kind;   /* enum silo_framework_kind */
};

struct silo_framework_kernel {
    const char *name;
    int at; /* number of the kernel in the exported library */
    const struct silo_framework_parameter *parameters;
    uint32_t count;
};

/* The functions that an exported library offers to the framework libraries. The library exports no
 * other functions of libsilo. */
struct silo_framework {
    size_t size; /* sizeof(struct silo_framework) */
    /* Returns a kernel of the library's own bundle, which is opened at its first use; NULL with
     * `error` filled. */
    silo_kernel *(*kernel)(int at, silo_error *error);
    int (*launch)(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                  size_t count, const silo_call *call, silo_error *error);
    void (*clear)(silo_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
