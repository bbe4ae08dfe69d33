/* The state of one call, on its stack, and the reading of one argument into it. */
#ifndef SILO_FRAME_H
#define SILO_FRAME_H

#include "arguments.h"
#include "descriptor.h"
#include "guard.h"
#include "plan.h"

/* Its arrays are made as long as the call needs. */
struct silo_frame {
    /* One a parameter: integers sign-extended, floats as doubles, addresses; slots[SILO_SLOT_NULL]
     * is 0. */
    uint64_t *slots;
    /* Codes first, one a parameter, then the extra words of keys, constants, the device and
     * options. */
    uint64_t *key;
    uint32_t words;
    uint32_t device_word; /* where in the key the device stands */
    int32_t device_type;  /* of the arrays; SILO_DEVICE_UNKNOWN until one says */
    int32_t device_id;
    int32_t device_from; /* the parameter that said so */
    uint32_t descriptors_used;
    const struct silo_adapter *device_adapter; /* how it was read; NULL: no array */
    uint64_t scratch[2];                       /* addresses of scratch and profiling memory */
    struct silo_holds holds;
    struct silo_descriptor *descriptors; /* a slot holds the index of its own */
};

SILO_INLINE size_t silo_descriptor_room(const struct silo_plan *plan) {
    return plan->count < SILO_MAX_DESCRIPTORS ? (size_t)plan->count : SILO_MAX_DESCRIPTORS;
}

/* Words of a call's slots, the zero before them included, and of its key. */
SILO_INLINE size_t silo_slot_words(const struct silo_plan *plan) {
    return (size_t)plan->count + 1;
}

SILO_INLINE size_t silo_key_words(const struct silo_plan *plan, uint32_t options) {
    return 2 * (size_t)plan->count + 1 + 2 * (size_t)options;
}

/* Whatever is not an array, an int, a float, a bool or None given where it is expected; and every
 * error. All return 0, or -1 with an ArgumentError set. */
int silo_read_number(const struct silo_plan *plan, int32_t index, PyObject *object,
                     const struct silo_adapter *adapter, struct silo_frame *frame);
int silo_read_wide(const struct silo_plan *plan, int32_t index, PyObject *object,
                   struct silo_frame *frame);
int silo_read_error(const struct silo_plan *plan, int32_t index, PyObject *object);
/* The two words of a constexpr value or option called `name`. */
int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]);
/* The object whose identity is in the words (borrowed), or NULL where they hold a value. */
PyObject *silo_constant_identity(const uint64_t word[2]);
/* SILO_FLAG_RANGE32 where the memory behind an array has less than 2 GiB, else 0. Never leaves an
 * exception. */
uint64_t silo_range_flag(const struct silo_parameter *parameter, PyObject *object,
                         const struct silo_adapter *adapter);
/* A DLPack device type in words. */
const char *silo_device_name(int32_t type);
/* `view` is not on the device of the arrays before it: the first one, or shared memory, or an
 * error. */
int silo_merge_device(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                      const struct silo_adapter *adapter, struct silo_frame *frame);
/* Give a call without arrays a device: that of the first address it has, else the current one. */
void silo_place_call(const struct silo_plan *plan, struct silo_frame *frame);
/* A callable that opens the driver of a kind ("cuda", "hip") when it is first needed; borrowed. */
void silo_set_driver_opener(PyObject *opener);
/* Try to open the drivers that may have made the memory of this call; true where one is open. */
bool silo_open_drivers(void);

/* Part of every key: a new generation makes every launcher ask again. 16 bits, and what is left
 * behind is found again only after 65,536 of them. */
extern uint32_t silo_generation;

SILO_INLINE uint64_t silo_device_word(const struct silo_frame *frame) {
    return (uint64_t)(silo_generation & 0xffff) << 48 |
           (uint64_t)(uint16_t)frame->device_type << 32 | (uint32_t)frame->device_id;
}

SILO_INLINE unsigned silo_integer_flags(const struct silo_parameter *parameter, int64_t value) {
    return parameter->flags & SILO_PARAMETER_SPECIALIZE
               ? ((value & 15) == 0 ? SILO_FLAG_DIVISIBLE16 : 0U) |
                     (value == 1 ? SILO_FLAG_EQUAL1 : 0U)
               : 0U;
}

SILO_INLINE unsigned silo_address_flags(const struct silo_parameter *parameter, uint64_t address) {
    const unsigned both = SILO_PARAMETER_SPECIALIZE | SILO_PARAMETER_ALIGN;
    return (parameter->flags & both) == both && (address & 15) == 0 ? SILO_FLAG_ALIGNED16 : 0U;
}

SILO_INLINE int silo_read_integer(const struct silo_plan *plan, int32_t index, PyObject *object,
                                  struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (SILO_UNLIKELY(overflow != 0 || (value == -1 && PyErr_Occurred())))
        return silo_read_wide(plan, index, object, frame);
    const unsigned flags = silo_integer_flags(parameter, value);
    unsigned code = SILO_INT, bits = value == (int32_t)value ? 32 : 64;
    if (parameter->kind == SILO_PARAMETER_INT && parameter->type.bits != 0) {
        code = parameter->type.code;
        bits = parameter->type.bits;
        const unsigned spare = 64 - bits;
        const bool fits = code == SILO_UINT
                              ? value >= 0 && (spare == 0 || (uint64_t)value >> bits == 0)
                              : (int64_t)((uint64_t)value << spare) >> spare == value;
        if (SILO_UNLIKELY(!fits))
            return silo_read_error(plan, index, object);
    }
    frame->slots[index] = (uint64_t)value;
    frame->key[index] = SILO_CODE(SILO_VALUE_INT, code, bits, flags);
    return 0;
}

SILO_INLINE void silo_store_float(double value, int32_t index,
                                  const struct silo_parameter *parameter,
                                  struct silo_frame *frame) {
    memcpy(&frame->slots[index], &value, sizeof value);
    const bool typed = parameter->kind == SILO_PARAMETER_FLOAT && parameter->type.bits != 0;
    frame->key[index] =
        typed ? SILO_CODE(SILO_VALUE_FLOAT, parameter->type.code, parameter->type.bits, 0)
              : SILO_CODE(SILO_VALUE_FLOAT, SILO_FLOAT, 32, 0);
}

SILO_INLINE void silo_store_bool(bool value, int32_t index, struct silo_frame *frame) {
    frame->slots[index] = value;
    frame->key[index] = SILO_CODE(SILO_VALUE_BOOL, SILO_BOOL, 8, 0);
}

/* A torch.Tensor for which torch answers everything with what is usual; false: nothing is stored,
 * and the long way finds out. */
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
    frame->key[index] =
        SILO_CODE(SILO_VALUE_POINTER, type.code, type.bits, silo_address_flags(parameter, address));
    return true;
}

/* Any argument of a parameter that is no constexpr: all that the short ways above leave. -1 with an
 * ArgumentError set. */
int silo_read_other(const struct silo_plan *plan, int32_t index, PyObject *object,
                    struct silo_frame *frame);

#endif
