/* The functions that a checked kernel calls. One thread runs the kernel, one program after another.
 * The host sets up the state and reads the findings (kinds/triton/cpu/checking/cpu_faults.py
 * declares the same structs). After the first fault no memory is accessed. */

enum silo_check_kind {
    SILO_CHECK_NOTHING,
    SILO_CHECK_BOUNDS,
    SILO_CHECK_READONLY,
    SILO_CHECK_UNALIGNED,
    SILO_CHECK_UNINITIALIZED,
    SILO_CHECK_RACE,
    SILO_CHECK_ENDLESS,
    SILO_CHECK_ASSERT,
    SILO_CHECK_ASSUME,
    SILO_CHECK_DIVISIBLE,
    SILO_CHECK_CONTIGUOUS,
    SILO_CHECK_CONSTANT,
    SILO_CHECK_TWICE,
    SILO_CHECK_OUTSIDE,
};

/* Values of a shadow cell of struct silo_bounds.shared. */
enum silo_check_shared {
    SILO_CHECK_SHARED = 1,  /* several programs stored the same value here */
    SILO_CHECK_CHANGED = 2, /* a program read this memory and then stored to it, so in another order
                               it would have read the stores of others */
};

/* Values of a shadow cell of struct silo_bounds.fresh. */
enum silo_check_fresh {
    SILO_CHECK_HELD, /* something was written here */
    SILO_CHECK_NEW,  /* nothing was written here: a read is a fault */
    SILO_CHECK_JUNK, /* holds bytes that the allocator left: a read is recorded */
};

enum silo_check_use {
    SILO_CHECK_READS = 1,
    SILO_CHECK_WRITES = 2,
    SILO_CHECK_ATOMIC = 4,
    SILO_CHECK_ACQUIRES = 8,
    SILO_CHECK_RELEASES = 16,
};

/* The memory that one pointer argument may access, with its shadow memory. A shadow cell describes
 * 1 << shift bytes. */
struct silo_bounds {
    uint64_t low, high; /* addresses of the first byte and the end */
    uint64_t origin;    /* the address of the first byte that a cell describes */
    uint64_t *writers;  /* the last writer, encoded by silo_check_cell; NULL: not needed */
    uint64_t *readers; /* the reader since that write, encoded likewise; SILO_CHECK_MANY: several */
    uint8_t *fresh;    /* enum silo_check_fresh; NULL: all of it was written before */
    uint8_t *shared;   /* enum silo_check_shared; NULL if `writers` is NULL */
    uint64_t
        *stamps; /* the number of the store's execution that wrote here last; NULL: not needed */
    uint8_t *stored; /* the bytes that this execution wrote, one for each byte from `origin` */
    uint8_t const *inside; /* 1 for each byte from `low` that is part of the array; NULL: all are */
    int32_t writable;
    int32_t unused;
};

/* One watched operation: a memory access, or an operation whose result may be a value that kernels
 * should not use. */
struct silo_site {
    uint32_t use;          /* enum silo_check_use */
    uint32_t bytes;        /* size of one access */
    uint32_t first, count; /* the allowed bounds: `count` numbers, in reach[first], ... */
    uint32_t change;       /* replaces a suspect value: 0 keeps it, 1 to 3 choose another */
    uint32_t seen;   /* 1 if the result was suspect in program watch_program; `watched` is the first
                        such element */
    uint64_t events; /* how often the result was suspect; `order` is the number of sites that were
                        suspect before this site was for the first time */
    uint64_t order, program;
    int64_t lane, watched;
    uint64_t stamp; /* the number of the current execution, for a store of several elements */
};

struct silo_check {
    uint32_t bytes; /* the first three members are those of struct silo_fault */
    int32_t claimed;
    char text[1016];
    struct silo_site *sites;
    struct silo_bounds const *bounds;
    uint32_t const *reach;
    uint64_t limit; /* the most steps (accesses and loop iterations) of a program */
    uint64_t shift;
    /* The order that atomics establish. A clock counts the releases of each of `programs` programs.
     * Row 0 of `clocks` is the clock of the running program; row i is the clock that a program
     * acquires at the address in locations[i - 1]. NULL: there are too many programs. */
    uint64_t programs;
    uint16_t *clocks;
    uint64_t *locations;
    uint64_t rows, used;
    /* The first fault: */
    int32_t kind, site;
    int64_t lane;
    uint64_t address, other;
    uint64_t program; /* the running program */
    uint64_t steps, order;
    uint32_t epoch, acquired;
    int64_t last;
    /* The last writer of the address `watch`, for reports. */
    uint64_t watch, watch_program, writer;
    int64_t writer_lane;
    int32_t writer_site, quiet;
    /* The first read of memory that was never written; unset_site is the number of the reading site
     * + 1, or 0 if there was none. */
    uint64_t unset_site, unset_address, unset_program;
    int64_t unset_lane;
    uint64_t stamp; /* executions of stores so far */
    void const
        *value; /* the value that the running access stores; NULL if the access is no store */
    uint64_t spare[2]; /* the target of a compare-and-swap that must not access its own address */
};

/* Encodes an access: program + 1, site, releases of the program so far, and whether it is atomic.
 */
SILO_INLINE uint64_t silo_check_cell(struct silo_check const *check, uint32_t site, uint32_t use) {
    return (check->program + 1) << 24 | (uint64_t)(site & 0xfffu) << 12 |
           (uint64_t)check->epoch << 1 | (use & SILO_CHECK_ATOMIC ? 1u : 0u);
}

#define SILO_CHECK_MANY (~(uint64_t)0 << 24)

static
    __attribute__((noinline, unused)) void silo_check_fail(struct silo_check *check, int32_t kind,
                                                           uint32_t site, int64_t lane,
                                                           uint64_t address, uint64_t other) {
    if (check->kind)
        return;
    check->kind = kind;
    check->site = (int32_t)site;
    check->lane = lane;
    check->address = address;
    check->other = other;
}

/* Whether the access that `cell` records happened before the current access of the running program.
 */
static __attribute__((unused)) int silo_check_ordered(struct silo_check const *check,
                                                      uint64_t cell) {
    if (!check->acquired)
        return 0;
    uint64_t epoch = cell >> 1 & 0x7ffu;
    if (!check->clocks || epoch == 0x7ffu || cell >= SILO_CHECK_MANY)
        return 1; /* unknown: counts as ordered, to avoid a false alarm */
    return check->clocks[(cell >> 24) - 1] > epoch;
}

/* The row of `address` in `clocks`; 0 if it has no row and none can be added. */
static __attribute__((unused)) uint64_t silo_check_row(struct silo_check *check, uint64_t address,
                                                       int make) {
    uint64_t at = (address >> 2) * 0x9e3779b97f4a7c15u % check->rows;
    for (; check->locations[at]; at = (at + 1) % check->rows)
        if (check->locations[at] == address)
            return at + 1;
    if (!make || check->used * 2 >= check->rows)
        return 0;
    check->used++;
    check->locations[at] = address;
    return at + 1;
}

static __attribute__((unused)) void silo_check_sync(struct silo_check *check, uint32_t use,
                                                    uint64_t address) {
    uint64_t programs = check->programs;
    uint64_t row;
    if (use & SILO_CHECK_ACQUIRES) {
        if (!check->clocks) {
            check->acquired = 1;
        } else if ((row = silo_check_row(check, address, 0)) != 0) {
            check->acquired = 1;
            uint16_t *known = check->clocks;
            uint16_t const *clock = check->clocks + row * programs;
            for (uint64_t i = 0; i < programs; i++)
                known[i] = clock[i] > known[i] ? clock[i] : known[i];
        }
    }
    if ((use & SILO_CHECK_RELEASES) && check->clocks) {
        row = silo_check_row(check, address, 1);
        if (!row) {
            check->clocks = (uint16_t *)0;
            return;
        }
        uint16_t const *known = check->clocks;
        uint16_t *clock = check->clocks + row * programs;
        for (uint64_t i = 0; check->acquired && i < programs; i++)
            clock[i] = clock[i] > known[i] ? clock[i] : known[i];
        check->epoch = check->epoch < 0x7ffu ? check->epoch + 1 : check->epoch;
        clock[check->program] = (uint16_t)check->epoch;
    }
}

static __attribute__((unused)) struct silo_bounds const *
silo_check_find(struct silo_check const *check, struct silo_site const *site, uint64_t address) {
    for (uint32_t i = 0; i < site->count; i++) {
        struct silo_bounds const *bounds = &check->bounds[check->reach[site->first + i]];
        if (address < bounds->low || address >= bounds->high ||
            bounds->high - address < site->bytes)
            continue;
        uint64_t const at = address - bounds->low;
        if (!bounds->inside || (bounds->inside[at] && bounds->inside[at + site->bytes - 1]))
            return bounds;
    }
    return (struct silo_bounds const *)0;
}

/* Whether a plain store leaves memory as it is. Programs run one after another, so memory holds the
 * values that earlier programs wrote. */
SILO_INLINE int silo_check_same(struct silo_check const *check, struct silo_site const *site,
                                uint64_t address) {
    return check->value &&
           !__builtin_memcmp((void const *)(uintptr_t)address, check->value, site->bytes);
}

/* Records an access to a cell; returns whether it races with an access of another program. Plain
 * stores of the same value by several programs are no race, because memory holds this value
 * whichever store is last; such a store counts as an event of its site. After that, a write of
 * another value is a race, even if it is by the program that wrote last. */
SILO_INLINE int silo_check_races(struct silo_check *check, struct silo_bounds const *bounds,
                                 struct silo_site *site, uint64_t address, uint64_t at,
                                 uint64_t mine) {
    uint32_t const use = site->use;
    uint64_t const own = mine >> 24, writer = bounds->writers[at], reader = bounds->readers[at];
    int const conflict =
        writer && writer >> 24 != own && !(writer & mine & 1) && !silo_check_ordered(check, writer);
    if (conflict && !(writer & 1) && bounds->shared[at] != SILO_CHECK_CHANGED &&
        silo_check_same(check, site, address)) {
        bounds->shared[at] = SILO_CHECK_SHARED;
        site->events++;
    } else if (conflict) {
        check->other = writer;
        return 1;
    }
    if (bounds->shared[at] == SILO_CHECK_SHARED && (use & SILO_CHECK_WRITES) && !check->acquired &&
        !silo_check_same(check, site, address)) {
        check->other = SILO_CHECK_MANY | (writer & 0xfff000u);
        return 1;
    }
    if (use & SILO_CHECK_WRITES) {
        /* An atomic read does not race with this access if the access is atomic too: either the
         * reader also wrote, and was compared above as the writer, or it was a volatile load of
         * values that atomics write. A program that read the shared value after storing it would
         * read the same value in any order. */
        if (reader && reader >> 24 != own && !(reader & mine & 1) &&
            !(bounds->shared[at] == SILO_CHECK_SHARED && reader >> 24 == writer >> 24) &&
            !silo_check_ordered(check, reader)) {
            check->other = reader;
            return 1;
        }
        if (reader && (reader >> 24 != writer >> 24 || !silo_check_same(check, site, address)))
            bounds->shared[at] = SILO_CHECK_CHANGED;
        /* A plain write stays recorded if atomics of the same program follow it, so that atomics of
         * other programs still race with it. */
        if (writer >> 24 != own || (writer & 1) || !(mine & 1))
            bounds->writers[at] = mine;
        bounds->readers[at] = 0;
    } else if (!reader || reader >> 24 == own ||
               (reader < SILO_CHECK_MANY && silo_check_ordered(check, reader))) {
        bounds->readers[at] = reader >> 24 == own ? mine & (reader | ~(uint64_t)1) : mine;
    } else {
        bounds->readers[at] = SILO_CHECK_MANY | 0xfff000u | (reader & mine & 1);
    }
    return 0;
}

/* Whether the running execution of a store of several elements has already stored another value to
 * `address`; records the value. Elements of one store are aligned and have one size, so two
 * elements have either the same address or no byte in common. */
static __attribute__((unused)) int silo_check_twice(struct silo_check const *check,
                                                    struct silo_bounds const *bounds,
                                                    struct silo_site const *site,
                                                    uint64_t address) {
    if (!site->stamp || !bounds->stamps)
        return 0;
    uint64_t const from = address - bounds->origin, at = from >> check->shift;
    if (bounds->stamps[at] == site->stamp)
        return __builtin_memcmp(bounds->stored + from, check->value, site->bytes) != 0;
    bounds->stamps[at] = site->stamp;
    __builtin_memcpy(bounds->stored + from, check->value, site->bytes);
    return 0;
}

/* Whether the access may happen. */
static __attribute__((noinline, unused)) uint8_t silo_check_access(void *context, uint32_t number,
                                                                   uint64_t address, int mask,
                                                                   int64_t lane) {
    struct silo_check *check = (struct silo_check *)context;
    struct silo_site *site = &check->sites[number];
    if (!mask || check->kind)
        return 0;
    check->steps++;
    struct silo_bounds const *bounds = silo_check_find(check, site, address);
    uint32_t const use = site->use;
    int32_t kind = SILO_CHECK_NOTHING;
    check->other = 0;
    if (!bounds)
        kind = SILO_CHECK_BOUNDS;
    else if (address & (site->bytes - 1))
        kind = SILO_CHECK_UNALIGNED;
    else if ((use & SILO_CHECK_WRITES) && !bounds->writable)
        kind = SILO_CHECK_READONLY;
    if (kind) {
        silo_check_fail(check, kind, number, lane, address, 0);
        return 0;
    }
    if (use & SILO_CHECK_ACQUIRES)
        silo_check_sync(check, SILO_CHECK_ACQUIRES, address);
    uint64_t const first = (address - bounds->origin) >> check->shift;
    uint64_t const last = (address + site->bytes - 1 - bounds->origin) >> check->shift;
    uint64_t const mine = silo_check_cell(check, number, use);
    for (uint64_t at = first; at <= last; at++) {
        if (bounds->fresh) {
            if ((use & SILO_CHECK_READS) && bounds->fresh[at] == SILO_CHECK_NEW) {
                silo_check_fail(check, SILO_CHECK_UNINITIALIZED, number, lane, address, 0);
                return 0;
            }
            if ((use & SILO_CHECK_READS) && bounds->fresh[at] && !check->unset_site) {
                check->unset_site = (uint64_t)number + 1;
                check->unset_lane = lane;
                check->unset_program = check->program;
                check->unset_address = address;
            }
            if (use & SILO_CHECK_WRITES)
                bounds->fresh[at] = SILO_CHECK_HELD;
        }
        if (bounds->writers && silo_check_races(check, bounds, site, address, at, mine)) {
            silo_check_fail(check, SILO_CHECK_RACE, number, lane, address, check->other);
            return 0;
        }
    }
    if (check->value && silo_check_twice(check, bounds, site, address)) {
        silo_check_fail(check, SILO_CHECK_TWICE, number, lane, address, 0);
        return 0;
    }
    if (use & SILO_CHECK_RELEASES)
        silo_check_sync(check, SILO_CHECK_RELEASES, address);
    if ((use & SILO_CHECK_WRITES) && check->watch - address < site->bytes) {
        check->writer = check->program;
        check->writer_lane = lane;
        check->writer_site = (int32_t)number;
    }
    return 1;
}

/* Whether the store of the value at `value` may happen. */
static __attribute__((unused)) uint8_t silo_check_store(void *context, uint32_t number,
                                                        uint64_t address, int mask, int64_t lane,
                                                        void const *value) {
    struct silo_check *check = (struct silo_check *)context;
    check->value = value;
    uint8_t const allowed = silo_check_access(context, number, address, mask, lane);
    check->value = (void const *)0;
    return allowed;
}

/* Called when a store of several elements begins. */
static __attribute__((unused)) void silo_check_stores(void *context, uint32_t number) {
    struct silo_check *check = (struct silo_check *)context;
    check->sites[number].stamp = ++check->stamp;
}

/* Checks an index into an axis of `extent` elements; returns it, or 0 if it is outside. */
static __attribute__((unused)) int64_t silo_check_within(void *context, uint32_t number,
                                                         int64_t lane, int64_t index,
                                                         int64_t extent) {
    if (index >= 0 && index < extent)
        return index;
    silo_check_fail((struct silo_check *)context, SILO_CHECK_OUTSIDE, number, lane, (uint64_t)index,
                    (uint64_t)extent);
    return 0;
}

/* The address to use for an operation that cannot be masked: the operation's own address, or the
 * address of spare memory if the operation must not access its own. */
static __attribute__((unused)) uint64_t silo_check_place(void *context, uint32_t number,
                                                         uint64_t address, int64_t lane) {
    struct silo_check *check = (struct silo_check *)context;
    if (silo_check_access(context, number, address, 1, lane))
        return address;
    return (uint64_t)(uintptr_t)check->spare;
}

/* Called when a program starts; returns 1 if the program is to be skipped. */
static __attribute__((unused)) int silo_check_begin(void *context, uint64_t program) {
    struct silo_check *check = (struct silo_check *)context;
    if (check->kind)
        return 1;
    if (check->acquired && check->clocks)
        __builtin_memset(check->clocks, 0, check->programs * sizeof *check->clocks);
    check->program = program;
    check->steps = 0;
    check->epoch = 0;
    check->acquired = 0;
    return 0;
}

/* Called once in every iteration of a loop; returns 1 after a fault, such as too many steps. */
static __attribute__((unused)) int silo_check_step(void *context, uint32_t number) {
    struct silo_check *check = (struct silo_check *)context;
    if (++check->steps > check->limit)
        silo_check_fail(check, SILO_CHECK_ENDLESS, number, -1, 0, 0);
    return check->kind != 0;
}

/* Records that a value is suspect; returns the number of the value to use instead, 0 for the value
 * itself. */
static __attribute__((noinline, unused)) uint32_t silo_check_suspect(void *context, uint32_t number,
                                                                     int64_t lane, int suspect) {
    struct silo_check *check = (struct silo_check *)context;
    struct silo_site *site = &check->sites[number];
    if (!suspect || check->kind)
        return 0;
    if (site->events++ == 0) {
        site->order = check->order++;
        site->program = check->program;
        site->lane = lane;
    }
    if (check->program == check->watch_program && !site->seen) {
        site->seen = 1;
        site->watched = lane;
    }
    return site->change;
}

static __attribute__((unused)) uint8_t silo_check_holds(void *context, int32_t kind,
                                                        uint32_t number, int64_t lane, int holds) {
    if (!holds)
        silo_check_fail((struct silo_check *)context, kind, number, lane, 0, 0);
    return holds != 0;
}

/* Checks for one element the promises of tl.multiple_of, tl.max_contiguous and tl.max_constancy.
 * `along` is the element's index along the axis; the previous element along that axis is the one
 * checked last. If an address breaks a promised alignment only because its allocation begins
 * unaligned, that is recorded but no fault: allocations on a GPU begin at large multiples. */
static __attribute__((unused)) uint8_t silo_check_hint(void *context, uint32_t number, int64_t lane,
                                                       int64_t along, int64_t value, int64_t unit,
                                                       int64_t divisor, int64_t contiguity,
                                                       int64_t constancy, int pointer) {
    struct silo_check *check = (struct silo_check *)context;
    int64_t const before = check->last;
    check->last = value;
    int const follows = along != 0 && value - before == unit;
    int const starts = contiguity > 1 ? along % contiguity == 0 : !follows;
    int32_t kind = SILO_CHECK_NOTHING;
    if (divisor > 1 && starts && value % divisor != 0)
        kind = SILO_CHECK_DIVISIBLE;
    else if (contiguity > 1 && !starts && !follows)
        kind = SILO_CHECK_CONTIGUOUS;
    else if (constancy > 1 && along % constancy != 0 && value != before)
        kind = SILO_CHECK_CONSTANT;
    if (kind == SILO_CHECK_DIVISIBLE && pointer) {
        struct silo_site *site = &check->sites[number];
        uint64_t const base = site->count == 1 ? check->bounds[check->reach[site->first]].low : 0;
        if (site->count != 1 || ((uint64_t)value - base) % (uint64_t)divisor == 0) {
            (void)silo_check_suspect(context, number, lane, 1);
            return 1;
        }
    }
    if (kind)
        silo_check_fail(check, kind, number, lane, (uint64_t)value, (uint64_t)before);
    return kind == 0;
}

SILO_INLINE int silo_check_wraps_add(int32_t a, int32_t b) {
    int32_t unused;
    return __builtin_add_overflow(a, b, &unused);
}

SILO_INLINE int silo_check_wraps_sub(int32_t a, int32_t b) {
    int32_t unused;
    return __builtin_sub_overflow(a, b, &unused);
}

SILO_INLINE int silo_check_wraps_mul(int32_t a, int32_t b) {
    int32_t unused;
    return __builtin_mul_overflow(a, b, &unused);
}
