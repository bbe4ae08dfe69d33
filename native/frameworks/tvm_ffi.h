/* Kernels as functions of TVM-FFI, called from Python, C++, Rust or jax through the library's
 * symbols `__tvm_ffi_NAME`. Plain C; tvm-ffi is neither included nor linked: the current stream and
 * the function that raises are found in the process that calls.
 *
 * A call takes the kernel's parameters in order, but for those that its tuned config sets; those
 * left out at the end get their defaults. A tuple of one to three integers after them is the grid.
 * A descriptor is a tensor, or the pair of a tensor and its block. */
#ifndef SILO_TVM_FFI_H
#define SILO_TVM_FFI_H

#include "framework.h"

/* The function that one symbol calls. */
struct silo_ffi_function {
    struct silo_framework_kernel kernel;
    silo_kernel *(*find)(int at, silo_error *error);
};

/* TVMFFISafeCallType without the handle: 0, or -1 with the error raised. Nothing is returned. */
int silo_ffi_call(const struct silo_ffi_function *function, const void *arguments, int32_t count);

/* Defines the symbol of one function. */
#define SILO_FFI_SYMBOL(symbol, function)                                                          \
    __attribute__((visibility("default"))) int symbol(void *self, const void *arguments,           \
                                                      int32_t count, void *result);                \
    int symbol(void *self, const void *arguments, int32_t count, void *result) {                   \
        (void)self;                                                                                \
        (void)result; /* the caller has made it None */                                            \
        return silo_ffi_call(&(function), arguments, count);                                       \
    }

#endif
