#include "placement.h"

#include "errors.h"
#include "memory_types.h"

uint32_t silo_generation;

static PyObject *driver_opener; /* owned; NULL if none is set */

void silo_set_driver_opener(PyObject *opener) {
    PyObject *old = driver_opener;
    Py_INCREF(opener);
    driver_opener = opener;
    Py_XDECREF(old);
}

bool silo_open_drivers(void) {
    /* The drivers are opened only once, because a driver does not appear while a process runs. The
     * flag is set afterwards, so that a second thread which comes meanwhile also opens them (and
     * waits for the first thread) instead of reading an empty list. */
    static bool opened;
    if (!__atomic_load_n(&opened, __ATOMIC_ACQUIRE) && driver_opener != NULL) {
        PyObject *result = PyObject_CallNoArgs(driver_opener);
        if (result == NULL)
            PyErr_Clear(); /* the opener has logged the error; a missing GPU does not matter to a
                              call on the CPU */
        Py_XDECREF(result);
        __atomic_store_n(&opened, true, __ATOMIC_RELEASE);
    }
    return silo_gpu_usual()->open;
}

/* Returns whether host memory is pinned or managed by the GPU's driver. A null address (an empty
 * array's) counts as pinned. */
static bool is_pinned(const struct silo_gpu *gpu, uint64_t address) {
    int32_t type, index;
    return address == 0 ||
           (gpu != NULL && gpu->locate(address, &type, &index) == 0 && type != SILO_DEVICE_CPU);
}

/* Returns whether all arrays before parameter `index` lie in pinned memory. */
static bool all_pinned(const struct silo_gpu *gpu, const struct silo_frame *frame, int32_t index) {
    for (int32_t i = 0; i < index; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        if ((kind == SILO_VALUE_POINTER && !is_pinned(gpu, frame->slots[i])) ||
            (kind == SILO_VALUE_DESCRIPTOR &&
             !is_pinned(gpu, frame->descriptors[frame->slots[i]].address)))
            return false;
    }
    return true;
}

static int raise_mixed(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                       const struct silo_frame *frame) {
    const bool host = view->device_type == SILO_DEVICE_CPU || frame->device_type == SILO_DEVICE_CPU;
    PyErr_Format(
        silo_argument_error,
        "%U: argument '%U' is on %s:%d and '%U' on %s:%d; all arrays of one call are on one "
        "device%s",
        plan->kernel, plan->names[frame->device_from], silo_memory_type(frame->device_type)->name,
        (int)frame->device_id, plan->names[index], silo_memory_type(view->device_type)->name,
        (int)view->device_id, host ? " (host memory beside a GPU's has to be pinned)" : "");
    return -1;
}

/* Checks that the device that Triton chose can use memory of another device; -1 with an
 * ArgumentError set. */
static SILO_NOINLINE int check_placed(const struct silo_plan *plan, int32_t index,
                                      const struct silo_view *view,
                                      const struct silo_frame *frame) {
    /* Accepts the memory of a peer GPU, which kernels across GPUs use. */
    if (view->device_type == frame->device_type)
        return 0;
    if (view->device_type == SILO_DEVICE_CPU && silo_open_drivers() &&
        is_pinned(silo_gpu_of_memory(frame->device_type), view->address))
        return 0;
    PyErr_Format(silo_argument_error, "%U: argument '%U' is on %s:%d, and the launch on %s:%d",
                 plan->kernel, plan->names[index], silo_memory_type(view->device_type)->name,
                 (int)view->device_id, silo_memory_type(frame->device_type)->name,
                 (int)frame->device_id);
    return -1;
}

int silo_merge_device(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                      const struct silo_adapter *adapter, struct silo_frame *frame) {
    if (view->device_type == SILO_DEVICE_UNKNOWN)
        return 0; /* a duck-typed array may not name its device */
    if (frame->device_type != SILO_DEVICE_UNKNOWN) {
        if (silo_memory_type(view->device_type)->shared)
            return 0;
        if (SILO_UNLIKELY(frame->placed))
            return check_placed(plan, index, view, frame);
        if (!silo_memory_type(frame->device_type)->shared) {
            /* Some libraries (torch) report the CPU as the device of pinned memory. */
            if (view->device_type == SILO_DEVICE_CPU && silo_open_drivers() &&
                is_pinned(silo_gpu_of_memory(frame->device_type), view->address))
                return 0;
            if (!(frame->device_type == SILO_DEVICE_CPU && silo_open_drivers() &&
                  all_pinned(silo_gpu_of_memory(view->device_type), frame, index)))
                return raise_mixed(plan, index, view, frame);
        }
    }
    frame->device_type = view->device_type;
    frame->device_id = view->device_id;
    frame->device_from = index;
    frame->device_adapter = adapter;
    return 0;
}

void silo_place_call(const struct silo_plan *plan, struct silo_frame *frame) {
    if (!silo_open_drivers())
        return;
    const struct silo_gpu *gpu = silo_gpu_usual();
    int32_t type, index;
    for (int32_t i = 0; i < plan->count; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        if (kind != SILO_VALUE_ADDRESS && kind != SILO_VALUE_POINTER &&
            kind != SILO_VALUE_DESCRIPTOR)
            continue;
        const uint64_t address = kind == SILO_VALUE_DESCRIPTOR
                                     ? frame->descriptors[frame->slots[i]].address
                                     : frame->slots[i];
        if (address == 0)
            continue;
        if (gpu->locate(address, &type, &index) == 0 && type != SILO_DEVICE_CPU) {
            frame->device_type = gpu->memory_type;
            frame->device_id = index;
            frame->device_from = i;
        }
        return; /* only one driver is asked, because an address may be valid in several */
    }
    if (gpu->device_count == 0)
        return;
    if (gpu->current_device(&index) != 0)
        index = 0; /* this thread has no current context yet, and frameworks begin with device 0 */
    frame->device_type = gpu->memory_type;
    frame->device_id = index;
}
