/* The stream of a launch: the stream that the call gives, or the current stream of the framework of
 * its arrays. */
#ifndef SILO_STREAM_H
#define SILO_STREAM_H

#include "arguments.h"
#include "plan.h"

/* From an integer or an object that holds one: torch (`cuda_stream`), the CUDA stream protocol
 * (`__cuda_stream__`), cupy (`ptr`), Silo and numba (`handle`). -1 with an ArgumentError set. */
int silo_stream_read(PyObject *kernel, PyObject *name, PyObject *object, void **stream);

SILO_INLINE int silo_stream_given(const struct silo_plan *plan, PyObject *object, void **stream) {
    return silo_stream_read(plan->kernel, plan->word_stream, object, stream);
}

/* By DLPack's exchange API or the Python function registered for the type; the null stream by
 * default. -1 with an exception set. */
int silo_stream_slow(const struct silo_adapter *adapter, int32_t device_type, int32_t device_id,
                     void **stream);

/* `adapter` reads the array that named the device; NULL for a call without arrays, which goes to
 * torch's current stream if torch is in use. */
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
