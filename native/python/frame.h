/* The state of one call, which lies on the call's stack, and functions that read an argument into
 * it. */
#ifndef SILO_FRAME_H
#define SILO_FRAME_H

#include "arguments.h"
#include "descriptor_object.h"
#include "packing.h"
#include "plan.h"

/* The value of `device_from` if no argument of the call is an array. */
#define SILO_NO_PARAMETER (-1)

/* Which foreign code ran since the arguments were read. */
enum silo_ran {
    SILO_RAN_NOTHING,
    SILO_RAN_ARGUMENT, /* code of an argument's class, called to read its memory, value or stream */
    SILO_RAN_PROGRAM,  /* code of the program: a grid function, hook, config function or compiler */
};

/* The state of one call. Its arrays are allocated with the length that the call needs. */
struct silo_frame {
    /* One slot for each parameter: integers sign-extended, floats as doubles, arrays as addresses;
     * slots[SILO_SLOT_NULL] is 0. */
    uint64_t *slots;
    /* The words of the guard key: first one code for each parameter, then the words of key
     * parameters, constants, the device and options. */
    uint64_t *key;
    uint32_t words;
    uint32_t device_word; /* position of the device's word in the key */
    int32_t device_type; /* device type of the arrays; SILO_DEVICE_UNKNOWN until an array is read */
    int32_t device_id;
    int32_t device_from; /* the parameter that decided the device, or SILO_NO_PARAMETER */
    uint32_t descriptors_used;
    bool placed; /* Triton chose the device, and arrays may be on other devices of the same type */
    uint8_t ran; /* enum silo_ran */
    uint32_t extent_words; /* length of `extents`; both members are set only if extents are part of
                              the launcher's keys */
    uint64_t *extents;     /* words of the extents in the key, see extents.h */
    /* Adapter of the array that decided the device; NULL without arrays. */
    const struct silo_adapter *device_adapter;
    uint64_t scratch[2]; /* addresses of scratch and profiling memory */
    struct silo_holds holds;
    /* The slot of a descriptor parameter holds an index into this array. */
    struct silo_descriptor *descriptors;
    /* As in struct silo_values: for each parameter, the number of axes, the extents and the strides
     * of its array; NULL unless extents are part of the launcher's keys. */
    const uint64_t **layouts;
    /* Where to write the shape and strides of the next array whose layout the kernel receives as
     * parameters. The key has only facts about these numbers. */
    uint64_t *passed;
    /* Owned: the launch's return value, set only if the launch function returned 1. */
    PyObject *result;
};

SILO_INLINE size_t silo_descriptor_room(const struct silo_plan *plan) {
    return plan->count < SILO_MAX_DESCRIPTORS ? (size_t)plan->count : SILO_MAX_DESCRIPTORS;
}

/* Returns the owner of descriptor number `index`; the owners are stored after the descriptors. */
SILO_INLINE struct silo_descriptor_owner *
silo_owner_of(const struct silo_plan *plan, const struct silo_frame *frame, uint64_t index) {
    return (struct silo_descriptor_owner *)(frame->descriptors + silo_descriptor_room(plan)) +
           index;
}

/* The next two functions return the number of words to allocate: for a call's slots, with the zero
 * slot before them, and for the call's key. */
SILO_INLINE size_t silo_slot_words(const struct silo_plan *plan) {
    return (size_t)plan->count + 1;
}

SILO_INLINE size_t silo_key_words(const struct silo_plan *plan, uint32_t options) {
    return 2 * (size_t)plan->count + 1 + 2 * (size_t)options;
}

/* Called before an attribute of an object is read. Records that code of an argument may run, if the
 * object's class may be written in Python. */
SILO_INLINE void silo_ask(struct silo_frame *frame, PyObject *object) {
    if (frame->ran == SILO_RAN_NOTHING &&
        (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0)
        frame->ran = SILO_RAN_ARGUMENT;
}

/* Raises "KERNEL: argument 'NAME' needs ..., got ..."; returns -1. */
int silo_read_error(const struct silo_plan *plan, int32_t index, PyObject *object);

SILO_INLINE void silo_store_float(double value, int32_t index,
                                  const struct silo_parameter *parameter,
                                  struct silo_frame *frame) {
    memcpy(&frame->slots[index], &value, sizeof value);
    frame->key[index] = silo_float_word(parameter);
}

SILO_INLINE void silo_store_bool(bool value, int32_t index, struct silo_frame *frame) {
    frame->slots[index] = value;
    frame->key[index] = silo_bool_word();
}

#endif
