/* torch through the C functions it keeps stable for AOTInductor (aoti_torch_*), found by dlsym in
 * the library that torch has already loaded, and applied to the at::Tensor inside the Python
 * object. Where that lies is found at start by comparing with a handle torch itself gives out; it
 * is never assumed. */
#ifndef SILO_TORCH_SHIM_H
#define SILO_TORCH_SHIM_H

#include "dlpack.h"
#include "python.h"

struct silo_torch {
    ptrdiff_t offset; /* of the at::Tensor in the PyObject; 0: the shim is off */
    int32_t (*data_ptr)(void *, void **);
    int32_t (*dtype)(void *, int32_t *);
    int32_t (*device_type)(void *, int32_t *);
    int32_t (*device_index)(void *, int32_t *);
    int32_t (*dim)(void *, int64_t *);
    int32_t (*sizes)(void *, int64_t **);
    int32_t (*strides)(void *, int64_t **);
    int32_t (*storage_bytes)(void *, int64_t *); /* NULL: not in this torch */
    int32_t (*current_stream)(int32_t, void **); /* NULL: torch has no GPU */
    int32_t gpu_type; /* DLPack device type of torch's "cuda": CUDA or ROCM */
};

extern struct silo_torch silo_torch;
extern const uint8_t silo_torch_codes[64]; /* DLPack code by c10::ScalarType; 0xff: none */
extern const uint8_t silo_torch_bits[64];

/* Turn the shim on after checking it on one tensor; the offset found, 0 where it does not fit.
 * `handle` is an at::Tensor* holding the same tensor. */
ptrdiff_t silo_torch_open(const char *library, PyObject *tensor, void *handle, bool rocm);

/* Ask torch for its current stream through the library with its GPU part; false where that is not
 * loaded or has no such function. */
bool silo_torch_open_stream(const char *library);

/* Turn it off. */
void silo_torch_close(void);

SILO_INLINE void *silo_torch_handle(PyObject *tensor) {
    return (char *)tensor + silo_torch.offset;
}

#endif
