/* The stream of a launch: the stream that the call gives, or the current stream of the framework
 * that its arrays belong to. */
#ifndef SILO_STREAM_H
#define SILO_STREAM_H

#include "arguments.h"
#include "plan.h"

/* Reads a stream from an integer, or from a stream object: torch's (`cuda_stream`), one with the
 * CUDA stream protocol (`__cuda_stream__`), cupy's (`ptr`), or Silo's or numba's (`handle`).
 * Returns -1 with an ArgumentError set. */
int silo_stream_read(PyObject *kernel, PyObject *name, PyObject *object, void **stream);

SILO_INLINE int silo_stream_given(const struct silo_plan *plan, PyObject *object, void **stream) {
    return silo_stream_read(plan->kernel, plan->word_stream, object, stream);
}

/* Gets the current stream from DLPack's exchange API or from the Python function registered for the
 * type; without either it is the null stream. Returns -1 with an exception set. */
int silo_stream_slow(const struct silo_adapter *adapter, int32_t device_type, int32_t device_id,
                     void **stream);

/* Gets the current stream. `adapter` reads the array that decided the device; it is NULL for a
 * call without arrays, which uses torch's current stream if torch is loaded. */
SILO_INLINE int silo_stream_current(const struct silo_adapter *adapter, int32_t device_type,
                                    int32_t device_id, void **stream) {
    *stream = NULL;
    if (SILO_LIKELY((adapter == NULL || adapter->kind == SILO_ADAPT_TORCH) &&
                    silo_torch.current_stream != NULL) &&
        SILO_LIKELY(silo_torch.current_stream(device_id, stream) == 0))
        return 0;
    return adapter == NULL ? 0 : silo_stream_slow(adapter, device_type, device_id, stream);
}

int silo_stream_init(void);

#endif
