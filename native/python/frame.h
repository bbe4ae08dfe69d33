/* The state of one call, on its stack, and the reading of one argument into it. */
#ifndef SILO_FRAME_H
#define SILO_FRAME_H

#include "arguments.h"
#include "descriptor_object.h"
#include "packing.h"
#include "plan.h"

/* No parameter of the call is an array. */
#define SILO_NO_PARAMETER (-1)

/* Code other than Silo's that ran since the arguments were read. */
enum silo_ran {
    SILO_RAN_NOTHING,
    SILO_RAN_ARGUMENT, /* the argument whose memory, value or stream is read */
    SILO_RAN_PROGRAM,  /* a grid function, hook, config function or compiler */
};

/* The state of one call; its arrays are made as long as the call needs. */
struct silo_frame {
    /* One a parameter: integers sign-extended, floats as doubles, addresses; slots[SILO_SLOT_NULL]
     * is 0. */
    uint64_t *slots;
    /* Codes first, one a parameter, then the extra words of keys, constants, the device and
     * options. */
    uint64_t *key;
    uint32_t words;
    uint32_t device_word; /* the position of the device in the key */
    int32_t device_type;  /* device of the arrays; SILO_DEVICE_UNKNOWN until an array is read */
    int32_t device_id;
    int32_t device_from; /* the parameter that decided it, or SILO_NO_PARAMETER */
    uint32_t descriptors_used;
    bool placed;           /* Triton chose the device: arrays may be on others of its kind */
    uint8_t ran;           /* enum silo_ran */
    uint32_t extent_words; /* both only if the launcher's guard holds extents */
    uint64_t *extents;     /* those in the key, see extents.h */
    const struct silo_adapter *device_adapter; /* how it was read; NULL: no array */
    uint64_t scratch[2];                       /* addresses of scratch and profiling memory */
    struct silo_holds holds;
    struct silo_descriptor *descriptors; /* a slot holds its own index */
    const uint64_t **layouts; /* as in silo_values; NULL unless the guard holds extents */
    uint64_t *passed;         /* the place of the next shape and strides that are not in the key */
    PyObject *made; /* owned: the launch's return value if launching returned 1; else not set */
};

SILO_INLINE size_t silo_descriptor_room(const struct silo_plan *plan) {
    return plan->count < SILO_MAX_DESCRIPTORS ? (size_t)plan->count : SILO_MAX_DESCRIPTORS;
}

/* The argument of descriptor number `index`; these are stored behind the descriptors. */
SILO_INLINE struct silo_descriptor_owner *
silo_owner_of(const struct silo_plan *plan, const struct silo_frame *frame, uint64_t index) {
    return (struct silo_descriptor_owner *)(frame->descriptors + silo_descriptor_room(plan)) +
           index;
}

/* Words of a call's slots, the zero before them included, and of its key. */
SILO_INLINE size_t silo_slot_words(const struct silo_plan *plan) {
    return (size_t)plan->count + 1;
}

SILO_INLINE size_t silo_key_words(const struct silo_plan *plan, uint32_t options) {
    return 2 * (size_t)plan->count + 1 + 2 * (size_t)options;
}

/* An attribute of an object is read; returns whether its class may run Python code for it. */
SILO_INLINE void silo_ask(struct silo_frame *frame, PyObject *object) {
    if (frame->ran == SILO_RAN_NOTHING &&
        (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0)
        frame->ran = SILO_RAN_ARGUMENT;
}

/* "KERNEL: argument 'NAME' needs ..., got ...": -1. */
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
