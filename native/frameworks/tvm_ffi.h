/* Kernels as TVM-FFI functions, called from Python, C++, Rust or jax through the library's symbols
 * `__tvm_ffi_NAME`. Plain C. tvm-ffi is neither included nor linked: the functions for the current
 * stream and for raising errors are found in the calling process.
 *
 * A call passes the kernel's parameters in order, without those that the tuned config sets.
 * Parameters left out at the end get their defaults. A tuple of one to three integers after the
 * parameters is the grid. A descriptor is passed as a tensor, or as a pair of a tensor and its
 * block shape. */
#ifndef SILO_TVM_FFI_H
#define SILO_TVM_FFI_H

#include "framework.h"

/* The function behind one symbol. */
struct silo_ffi_function {
    struct silo_framework_kernel kernel;
    silo_kernel *(*find)(int at, silo_error *error);
};

/* Implements tvm-ffi's TVMFFISafeCallType, without the parameter `handle`: returns 0, or -1 with
 * the error raised. The function has no result for tvm-ffi's caller. */
int silo_ffi_call(const struct silo_ffi_function *function, const void *arguments, int32_t count);

/* Defines the symbol of a function. */
#define SILO_FFI_SYMBOL(symbol, function)                                                          \
    __attribute__((visibility("default"))) int symbol(void *self, const void *arguments,           \
                                                      int32_t count, void *result);                \
    int symbol(void *self, const void *arguments, int32_t count, void *result) {                   \
        (void)self;                                                                                \
        (void)result; /* the caller has set it to None */                                          \
        return silo_ffi_call(&(function), arguments, count);                                       \
    }

#endif
