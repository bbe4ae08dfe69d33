#include "allocator.h"

#include "errors.h"
#include "gpu.h"
#include "scratch.h"

static PyObject *allocator; /* owned; NULL if none is set */

int silo_allocator_set(PyObject *allocate) {
    if (allocate != Py_None && !PyCallable_Check(allocate)) {
        PyErr_SetString(PyExc_TypeError, "an allocator is a callable or None");
        return -1;
    }
    PyObject *old = allocator;
    allocator = allocate == Py_None ? NULL : allocate;
    Py_XINCREF(allocator);
    Py_XDECREF(old);
    return 0;
}

/* Returns the bytes of scratch memory that all programs of a launch need together (`each` for every
 * program), or -1 with an exception set. */
static int64_t total_bytes(const struct silo_plan *plan, const int64_t dims[3], uint64_t each) {
    silo_error error;
    int64_t bytes = 0;
    const char *kernel = PyUnicode_AsUTF8AndSize(plan->kernel, NULL);
    if (kernel == NULL)
        return -1;
    return silo_scratch_total(kernel, dims, each, &bytes, &error) == 0 ? bytes : silo_raise(&error);
}

static int take(const struct silo_plan *plan, const struct silo_binding *binding, int64_t bytes,
                uint32_t align, void *stream, PyObject *own_allocator, struct silo_frame *frame,
                uint64_t *address) {
    const struct silo_gpu_device *device = binding->loaded->function.device;
    /* `allocator` may be replaced while the call runs, so it is read once. */
    PyObject *call = own_allocator != NULL ? own_allocator : allocator;
    if (call == NULL) {
        PyErr_Format(silo_launch_error,
                     "%U needs %lld bytes of scratch memory, and there is no allocator; set one "
                     "with silo.set_allocator",
                     plan->kernel, (long long)bytes);
        return -1;
    }
    Py_INCREF(call);
    frame->ran = frame->ran == SILO_RAN_NOTHING ? SILO_RAN_ARGUMENT : frame->ran;
    PyObject *pair =
        PyObject_CallFunction(call, "LIsiK", (long long)bytes, (unsigned)align, device->gpu->name,
                              (int)device->index, (unsigned long long)(uintptr_t)stream);
    Py_DECREF(call);
    if (pair == NULL)
        return -1;
    unsigned long long where = 0;
    PyObject *owner;
    if (!PyArg_ParseTuple(pair, "OK", &owner, &where)) {
        Py_DECREF(pair);
        return -1;
    }
    /* The tuple (owner, address) keeps the owner alive. */
    frame->holds.object[frame->holds.objects++] = pair;
    /* An address from Triton's allocator (`own_allocator`) is used even if it is null or not
     * aligned, because Triton does not check it either. */
    if (own_allocator == NULL && (where == 0 || (align > 1 && where % align != 0))) {
        PyErr_Format(silo_launch_error,
                     "%U needs %lld bytes of scratch memory at a multiple of %u bytes; the "
                     "allocator gave %R at address %llu",
                     plan->kernel, (long long)bytes, (unsigned)align, owner, where);
        return -1;
    }
    *address = where;
    return 0;
}

int silo_allocator_take(const struct silo_plan *plan, const struct silo_binding *binding,
                        const int64_t dims[3], void *stream, PyObject *own_allocator,
                        struct silo_frame *frame) {
    const struct silo_function *function = &binding->loaded->function;
    const uint64_t each[2] = {function->scratch_bytes, function->profile_bytes};
    const uint32_t align[2] = {function->scratch_align, function->profile_align};
    for (int i = 0; i < 2; i++) {
        if (each[i] == 0)
            continue;
        const int64_t bytes = total_bytes(plan, dims, each[i]);
        if (bytes < 0 || take(plan, binding, bytes, align[i], stream, own_allocator, frame,
                              &frame->scratch[i]) != 0)
            return -1;
    }
    return 0;
}
