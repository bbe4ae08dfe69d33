/* Reads one argument into the state of a call. The functions that return int return 0, or -1 with
 * an ArgumentError set. */
#ifndef SILO_READING_H
#define SILO_READING_H

#include "frame.h"

/* Reads an int outside the signed 64-bit range, or an object that is not an int. */
int silo_read_wide(const struct silo_plan *plan, int32_t index, PyObject *object,
                   struct silo_frame *frame);

SILO_INLINE int silo_read_integer(const struct silo_plan *plan, int32_t index, PyObject *object,
                                  struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (SILO_UNLIKELY(overflow != 0 || (value == -1 && PyErr_Occurred())))
        return silo_read_wide(plan, index, object, frame);
    const uint64_t word = silo_integer_word(parameter, value);
    if (SILO_UNLIKELY(word == 0))
        return silo_read_error(plan, index, object);
    frame->slots[index] = (uint64_t)value;
    frame->key[index] = word;
    return 0;
}

/* Reads a plain torch.Tensor. Returns false if silo_read_other must read the argument; then nothing
 * is stored. */
SILO_INLINE bool silo_read_tensor(const struct silo_plan *plan, int32_t index, PyObject *object,
                                  struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    void *data;
    int32_t scalar_type, device_type, device_id;
    if (SILO_UNLIKELY(silo_torch_read(silo_torch_handle(object), &data, &scalar_type, &device_type,
                                      &device_id) != 0))
        return false;
    const struct silo_dtype type = silo_torch_dtype(scalar_type);
    const int32_t kind = silo_torch_device(device_type);
    if (SILO_UNLIKELY(data == NULL || type.bits == 0 || kind == SILO_DEVICE_ROCM ||
                      (parameter->type.bits != 0 &&
                       (parameter->type.bits != type.bits || parameter->type.code != type.code))))
        return false;
    const int32_t id = kind == SILO_DEVICE_CPU ? 0 : device_id;
    if (SILO_UNLIKELY(kind != frame->device_type || id != frame->device_id)) {
        if (SILO_UNLIKELY(frame->device_type != SILO_DEVICE_UNKNOWN || kind == SILO_DEVICE_UNKNOWN))
            return false;
        frame->device_type = kind;
        frame->device_id = id;
        frame->device_from = index;
        frame->device_adapter = &silo_torch.adapter;
    }
    const uint64_t address = (uint64_t)(uintptr_t)data;
    frame->slots[index] = address;
    frame->key[index] = SILO_CODE(SILO_VALUE_POINTER, type.code, type.bits,
                                  silo_address_flags(parameter, address, type.bits));
    return true;
}

/* Reads any argument of a parameter that is not a constexpr, if none of the functions above can
 * read the argument. */
int silo_read_other(const struct silo_plan *plan, int32_t index, PyObject *object,
                    struct silo_frame *frame);

/* Checks, after Python code ran during the call, that the arrays have the same memory. The call
 * holds the arrays, but an array need not keep its memory: a torch tensor may get other memory. */
int silo_read_again(const struct silo_plan *plan, PyObject *const *arguments,
                    const struct silo_frame *frame);

#endif
