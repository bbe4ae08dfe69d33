/* The memory of the flight recorder: a ring of slots with the last launches of this process, which
 * a signal handler may read. */
#ifndef SILO_FLIGHT_RING_H
#define SILO_FLIGHT_RING_H

#include "python.h"

/* The parts of a launch that are the same for every launch of a binding. Made once and never freed,
 * so that a signal handler may read it. */
struct silo_flight_kind {
    uint32_t number;  /* counted in the order of the kinds' first launches */
    uint32_t count;   /* number of parameters that a slot records */
    bool host;        /* the arrays are in host memory */
    char *text;       /* owned: Python's description of the kernel, as JSON */
    size_t bytes;     /* length of `text` */
    uint16_t *places; /* owned, one for each recorded parameter: its index in the launcher, with the
                         bits of enum silo_flight_place */
};

/* Bits of a recorded parameter. A number takes one word of a slot, an address three. */
enum silo_flight_place {
    SILO_FLIGHT_INDEX = 0x3fff, /* mask of the parameter's index in the launcher */
    SILO_FLIGHT_ADDRESS = 0x8000,
    SILO_FLIGHT_DESCRIPTOR = 0x4000, /* set with SILO_FLIGHT_ADDRESS for the address of a tensor
                                        descriptor's base */
};

enum silo_flight_state { SILO_FLIGHT_RUNNING, SILO_FLIGHT_RETURNED, SILO_FLIGHT_FAILED };

/* A copy of an array that was made before the launch. */
struct silo_flight_copy {
    uint64_t low; /* the address that `data` was copied from */
    size_t bytes;
    const char *data; /* the bytes of `owner` */
    PyObject *owner;  /* owned */
};

struct silo_flight_copies {
    uint32_t count;
    struct silo_flight_copy copy[];
};

/* One launch. In `words`, each address is followed by the start of its allocation and the
 * allocation's size in bytes; a size of 0 means that both are unknown. With SILO_FLIGHT_VIEW set in
 * the size, both describe only the array, because its allocation is unknown. */
struct silo_flight_slot {
    uint64_t number; /* 1 for the first launch; 0 while the slot is being written */
    struct silo_flight_kind *kind;
    void *stream;
    uint32_t grid[3];
    uint32_t state;                    /* enum silo_flight_state */
    struct silo_flight_copies *copies; /* owned, or NULL */
    uint64_t words[];
};

#define SILO_FLIGHT_VIEW (UINT64_C(1) << 63)
/* Bytes of a slot; parameters that do not fit are left out. It is an odd number of cache lines:
 * with a power of two, the first lines of all slots would compete for the same few sets of a cache.
 */
#define SILO_FLIGHT_STRIDE 1088
#define SILO_FLIGHT_WORDS                                                                          \
    ((SILO_FLIGHT_STRIDE - sizeof(struct silo_flight_slot)) / sizeof(uint64_t))

extern struct silo_flight_ring {
    bool on;
    bool copies;   /* set once a launch had copies: from then on every launch looks for copies that
                      its thread made, which takes time */
    uint32_t mask; /* the number of slots minus 1 */
    uint64_t last; /* the number of the last launch */
    uint64_t cleared;     /* launches up to this number are not reported */
    unsigned char *slots; /* owned; never freed */
    /* Owned: all kinds by their number; a new list replaces a full one. */
    struct silo_flight_kind **kinds;
    uint32_t kind_count, kind_room;
    ptrdiff_t storage, data, bytes; /* offsets in a TensorImpl (storage) and a StorageImpl (data,
                                       bytes); 0 if not found */
} silo_flight;

SILO_INLINE struct silo_flight_slot *silo_flight_slot_at(uint64_t number) {
    return (struct silo_flight_slot *)(void *)(silo_flight.slots +
                                               (size_t)(number & silo_flight.mask) *
                                                   SILO_FLIGHT_STRIDE);
}

#endif
