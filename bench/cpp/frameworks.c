/* The program's part of bench.cpp.frameworks, loaded beside an exported library: a C loop of
 * launches, and a function of TVM-FFI that does nothing. */
#include "framework.h"

#include <time.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns the nanoseconds that `count` launches of out = x + y over 16 elements take, or -1 if one
 * fails. */
int64_t launches(const struct silo_framework *library, void *x, void *y, void *out, int64_t count);

int64_t launches(const struct silo_framework *library, void *x, void *y, void *out, int64_t count) {
    const int64_t shape[] = {16};
    const silo_argument arguments[] = {silo_array(x, SILO_FLOAT32, 1, shape, NULL),
                                       silo_array(y, SILO_FLOAT32, 1, shape, NULL),
                                       silo_array(out, SILO_FLOAT32, 1, shape, NULL), silo_int(16)};
    const silo_queue queue = {SILO_CPU, 0, NULL};
    silo_kernel *const kernel = library->kernel(0, NULL);
    if (kernel == NULL)
        return -1;
    const int64_t start = now_ns();
    for (int64_t i = 0; i < count; i++)
        if (library->launch(kernel, &queue, arguments, 4, NULL, NULL) != 0)
            return -1;
    return now_ns() - start;
}

int __tvm_ffi_nothing(void *self, const void *arguments, int32_t count, void *result);

int __tvm_ffi_nothing(void *self, const void *arguments, int32_t count, void *result) {
    (void)self, (void)arguments, (void)count, (void)result;
    return 0;
}
