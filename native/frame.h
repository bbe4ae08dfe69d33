/* The state of one call, on its stack, and the reading of one argument into it. */
#ifndef SILO_FRAME_H
#define SILO_FRAME_H

#include "arguments.h"
#include "descriptor.h"
#include "guard.h"
#include "plan.h"

/* What is touched at every call comes first, close to the slots and the key, which are made as long
 * as the call needs; the rest is large and mostly untouched. */
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
    struct silo_descriptor
        descriptors[SILO_MAX_DESCRIPTORS]; /* a slot holds the index of its own */
};

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

SILO_INLINE uint64_t silo_device_word(const struct silo_frame *frame) {
    return (uint64_t)(uint32_t)frame->device_type << 32 | (uint32_t)frame->device_id;
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

SILO_INLINE int silo_read_array(const struct silo_plan *plan, int32_t index, PyObject *object,
                                const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_view view;
    if (SILO_UNLIKELY(silo_view_read(object, adapter, &view, &frame->holds) != 0))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(parameter->type.bits != 0 && (parameter->type.bits != view.dtype.bits ||
                                                    parameter->type.code != view.dtype.code)))
        return silo_read_error(plan, index, object);
    /* A duck type need not say its dtype; an array that has one no kernel knows is an error. */
    if (SILO_UNLIKELY(view.dtype.bits == 0 && adapter->kind != SILO_ADAPT_DATA_PTR))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(view.readonly && (parameter->flags & SILO_PARAMETER_WRITES)))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(view.device_type != frame->device_type ||
                      view.device_id != frame->device_id) &&
        silo_merge_device(plan, index, &view, adapter, frame) != 0)
        return -1;
    frame->slots[index] = view.address;
    frame->key[index] = SILO_CODE(SILO_VALUE_POINTER, view.dtype.code, view.dtype.bits,
                                  silo_address_flags(parameter, view.address) |
                                      (view.readonly ? SILO_FLAG_READONLY : 0U));
    if (SILO_UNLIKELY(view.device_type == SILO_DEVICE_ROCM))
        frame->key[index] |= silo_range_flag(parameter, object, adapter);
    return 0;
}

SILO_INLINE int silo_read_pointer(const struct silo_plan *plan, int32_t index, PyObject *object,
                                  struct silo_frame *frame) {
    PyTypeObject *type = Py_TYPE(object);
    if (SILO_UNLIKELY(object == Py_None)) {
        frame->slots[index] = 0;
        frame->key[index] = SILO_CODE(SILO_VALUE_NONE, 0, 0, 0);
        return 0;
    }
    if (type == &PyLong_Type) {
        /* A loop over digits; PyLong_AsUnsignedLongLong goes through bytes for values of this size.
         */
        const uint64_t address = PyLong_AsSize_t(object);
        if (SILO_UNLIKELY(address == UINT64_MAX && PyErr_Occurred()))
            return silo_read_error(plan, index, object);
        frame->slots[index] = address;
        frame->key[index] = SILO_CODE(SILO_VALUE_ADDRESS, 0, 0,
                                      silo_address_flags(&plan->parameters[index], address));
        return 0;
    }
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    return silo_read_array(plan, index, object, adapter, frame);
}

SILO_INLINE bool silo_parameter_is_key(const struct silo_parameter *parameter) {
    return (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)) != 0;
}

/* An undeclared parameter takes its type from what is given, as in Triton. */
SILO_INLINE int silo_read_any(const struct silo_plan *plan, int32_t index, PyObject *object,
                              struct silo_frame *frame) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyLong_Type)
        return silo_read_integer(plan, index, object, frame);
    if (type == &PyBool_Type) {
        silo_store_bool(object == Py_True, index, frame);
        return 0;
    }
    if (type == &PyFloat_Type) {
        silo_store_float(PyFloat_AsDouble(object), index, &plan->parameters[index], frame);
        return 0;
    }
    if (object == Py_None)
        return silo_read_pointer(plan, index, object, frame);
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    if (SILO_UNLIKELY(adapter->kind == SILO_ADAPT_NOTHING || adapter->kind >= SILO_ADAPT_INT))
        return silo_read_number(plan, index, object, adapter, frame);
    /* Keys are scalars, so an array without dimensions is one there; elsewhere it is a pointer, as
     * in Triton. */
    if (SILO_UNLIKELY(silo_parameter_is_key(&plan->parameters[index])) &&
        silo_has_no_dimensions(object, adapter))
        return silo_read_number(plan, index, object, adapter, frame);
    return silo_read_array(plan, index, object, adapter, frame);
}

SILO_INLINE int silo_read_scalar(const struct silo_plan *plan, int32_t index, PyObject *object,
                                 struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    PyTypeObject *type = Py_TYPE(object);
    if (parameter->kind == SILO_PARAMETER_INT && SILO_LIKELY(type == &PyLong_Type))
        return silo_read_integer(plan, index, object, frame);
    if (parameter->kind == SILO_PARAMETER_FLOAT && SILO_LIKELY(type == &PyFloat_Type)) {
        silo_store_float(PyFloat_AsDouble(object), index, parameter, frame);
        return 0;
    }
    if (parameter->kind == SILO_PARAMETER_BOOL && SILO_LIKELY(type == &PyBool_Type)) {
        silo_store_bool(object == Py_True, index, frame);
        return 0;
    }
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    return silo_read_number(plan, index, object, adapter, frame);
}

#endif
