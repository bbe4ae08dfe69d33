/* Kernels of an exported bundle as frameworks call them: the export's data about each, and the
 * functions that its shared library offers to the libraries beside it.
 *
 * The export generates a table of `struct silo_framework_kernel`; tvm_ffi.c makes TVM-FFI functions
 * of them and torch_op.h custom operators of torch. */
#ifndef SILO_FRAMEWORK_H
#define SILO_FRAMEWORK_H

#include "silo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a value of a framework becomes an argument. The facts that the value alone does not show. */
enum silo_framework_kind {
    SILO_FRAMEWORK_VALUE = 0,      /* by the value's own type */
    SILO_FRAMEWORK_FLOAT = 1,      /* an integer becomes a double */
    SILO_FRAMEWORK_DESCRIPTOR = 2, /* a tensor becomes a descriptor */
};

/* A parameter that a caller gives. Those that the tuned config sets are not among them. */
struct silo_framework_parameter {
    const char *name;
    uint16_t place; /* among all parameters of the kernel; ascending */
    uint8_t kind;   /* enum silo_framework_kind */
};

struct silo_framework_kernel {
    const char *name;
    int at; /* its number in the exported library */
    const struct silo_framework_parameter *parameters;
    uint32_t count;
};

/* The functions that an exported library offers to the libraries beside it; the rest of libsilo
 * stays hidden. */
struct silo_framework {
    size_t size; /* sizeof(struct silo_framework) */
    /* A kernel of the library's own bundle, which is opened at the first use; NULL with `error`
     * filled. */
    silo_kernel *(*kernel)(int at, silo_error *error);
    int (*launch)(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                  size_t count, const silo_call *call, silo_error *error);
    void (*clear)(silo_error *error);
};

#ifdef __cplusplus
}
#endif

#endif
