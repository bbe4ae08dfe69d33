/* The memory of the flight recorder: the last launches of this process, in slots that a signal
 * handler may read. */
#ifndef SILO_FLIGHT_RING_H
#define SILO_FLIGHT_RING_H

#include "python.h"

/* The parts of a launch that are the same each time: made once for a binding, never freed, so that
 * a signal handler may read it. */
struct silo_flight_kind {
    uint32_t number;  /* in the order of the first launches */
    uint32_t count;   /* parameters that a slot has words of */
    bool host;        /* its arrays are in host memory */
    char *text;       /* owned: what Python describes the kernel with, JSON */
    size_t bytes;     /* of `text` */
    uint16_t *places; /* owned: the launcher's parameter of each, with enum silo_flight_place */
};

/* A parameter in a slot: a number has one word, an address three. */
enum silo_flight_place {
    SILO_FLIGHT_INDEX = 0x3fff, /* mask of the launcher's parameter */
    SILO_FLIGHT_ADDRESS = 0x8000,
    SILO_FLIGHT_DESCRIPTOR = 0x4000, /* with SILO_FLIGHT_ADDRESS: of a tensor descriptor's base */
};

enum silo_flight_state { SILO_FLIGHT_RUNNING, SILO_FLIGHT_RETURNED, SILO_FLIGHT_FAILED };

/* A copy of an array, made before the launch. */
struct silo_flight_copy {
    uint64_t low; /* the address that `data` was copied from */
    size_t bytes;
    const char *data; /* of `owner` */
    PyObject *owner;  /* owned */
};

struct silo_flight_copies {
    uint32_t count;
    struct silo_flight_copy copy[];
};

/* One launch. An address has the start and the bytes of its allocation behind it; 0 bytes: unknown;
 * SILO_FLIGHT_VIEW set: of the array alone, whose allocation is unknown. */
struct silo_flight_slot {
    uint64_t number; /* 1 for the first launch; 0: being written */
    struct silo_flight_kind *kind;
    void *stream;
    uint32_t grid[3];
    uint32_t state;                    /* enum silo_flight_state */
    struct silo_flight_copies *copies; /* owned; NULL: none */
    uint64_t words[];
};

#define SILO_FLIGHT_VIEW (UINT64_C(1) << 63)
/* Bytes of a slot: parameters beyond are left out. An odd number of cache lines: with a power of
 * two all slots would share a quarter of the cache. */
#define SILO_FLIGHT_STRIDE 1088
#define SILO_FLIGHT_WORDS                                                                          \
    ((SILO_FLIGHT_STRIDE - sizeof(struct silo_flight_slot)) / sizeof(uint64_t))

extern struct silo_flight_ring {
    bool on;
    bool copies;          /* some launch had copies: threads look for theirs, which takes time */
    uint32_t mask;        /* slots - 1 */
    uint64_t last;        /* the number of the last launch */
    uint64_t cleared;     /* launches up to this number are not reported */
    unsigned char *slots; /* owned; never freed */
    struct silo_flight_kind **kinds; /* owned: all, by number; replaced when it grows */
    uint32_t kind_count, kind_room;
    ptrdiff_t storage, data, bytes; /* in a TensorImpl, a StorageImpl; 0: not found */
} silo_flight;

SILO_INLINE struct silo_flight_slot *silo_flight_slot_at(uint64_t number) {
    return (struct silo_flight_slot *)(void *)(silo_flight.slots +
                                               (size_t)(number & silo_flight.mask) *
                                                   SILO_FLIGHT_STRIDE);
}

#endif
