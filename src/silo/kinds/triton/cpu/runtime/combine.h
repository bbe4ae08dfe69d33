/* Atomic adds with unused old values: adds to one address are summed in a table first, so that
 * memory is accessed once for each address and not once for each element. Sums wrap, as the single
 * adds would. The table is a cache of 64-byte lines: consecutive addresses share a slot. A line
 * whose slot is taken replaces the line in the slot as long as this happens rarely; otherwise adds
 * go to memory one by one. */

enum {
    SILO_LINE_SUFFIX = 64 / (int)sizeof(TYPE), /* sums in a slot */
    /* The adds that one slot must save to be worth it, because inserting a line and writing it back
     * takes 20 ns. */
    SILO_COMBINE_SHARE_SUFFIX = 32,
};

typedef struct {
    uintptr_t *lines; /* the address of the line in each slot; 0: empty */
    UTYPE *sums;      /* SILO_LINE sums for each slot */
    uint16_t *used;   /* the numbers of the slots that hold a line */
    uint64_t slots;   /* a power of two */
    int64_t count;    /* length of `used` */
    int64_t missed;   /* adds of this tile that found another line in their slot */
    int64_t patience; /* the most misses of a tile for which the table is worth it */
    int direct;       /* whether adds bypass the table */
} silo_combine_SUFFIX;

/* Initialises a table of at most `most` slots for about `elements` adds, `tile` of them at a time.
 */
static __attribute__((noinline, unused)) void
silo_combine_start_SUFFIX(silo_combine_SUFFIX *table, uintptr_t *lines, UTYPE *sums, uint16_t *used,
                          uint64_t most, uint64_t elements, int64_t tile) {
    uint64_t slots = 1;
    while (slots < most && slots * 2 * SILO_COMBINE_SHARE_SUFFIX <= elements)
        slots *= 2;
    *table = (silo_combine_SUFFIX){lines, sums, used, slots, 0, 0, tile / 8, slots < 8};
    __builtin_memset(lines, 0, slots * sizeof *lines);
}

static __attribute__((noinline, unused)) void
silo_combine_flush_SUFFIX(silo_combine_SUFFIX *table, uint64_t slot, const int order) {
    TYPE *place = (TYPE *)table->lines[slot];
    const UTYPE *sums = table->sums + slot * SILO_LINE_SUFFIX;
    for (int i = 0; i < SILO_LINE_SUFFIX; i++)
        if (sums[i])
            __atomic_fetch_add(place + i, (TYPE)sums[i], order);
}

static __attribute__((noinline, unused)) void
silo_combine_miss_SUFFIX(silo_combine_SUFFIX *table, TYPE *place, TYPE value, const int order) {
    const uintptr_t at = (uintptr_t)place;
    const uint64_t slot = at / 64 % table->slots;
    const int taken = table->lines[slot] != 0;
    table->missed += taken;
    if (at % sizeof *place || table->missed > table->patience) {
        __atomic_fetch_add(place, value, order);
        return;
    }
    UTYPE *sums = table->sums + slot * SILO_LINE_SUFFIX;
    if (taken)
        silo_combine_flush_SUFFIX(table, slot, order);
    else
        table->used[table->count++] = (uint16_t)slot;
    table->lines[slot] = at - at % 64;
    __builtin_memset(sums, 0, 64);
    sums[at % 64 / sizeof *place] = (UTYPE)value;
}

/* Adds one value. `lines` and `sums` are the table's, `last` is its last slot. An address that is
 * not a multiple of the element's size is never found in a line. */
SILO_INLINE void silo_combine_add_SUFFIX(silo_combine_SUFFIX *table, const uintptr_t *lines,
                                         UTYPE *sums, const uint64_t last, TYPE *place, TYPE value,
                                         const int order) {
    const uintptr_t at = (uintptr_t)place, within = 64 - sizeof *place;
    const uint64_t slot = at / 64 & last;
    if (__builtin_expect(lines[slot] != (at & ~within), 0))
        silo_combine_miss_SUFFIX(table, place, value, order);
    else
        sums[at / sizeof *place & (last * SILO_LINE_SUFFIX + (SILO_LINE_SUFFIX - 1))] +=
            (UTYPE)value;
}

/* Called after each tile: adds bypass the table from now on if the tile missed too often. */
SILO_INLINE void silo_combine_tile_SUFFIX(silo_combine_SUFFIX *table) {
    table->direct |= table->missed > table->patience;
    table->missed = 0;
}

/* Adds every sum to memory and empties the table. */
static __attribute__((noinline, unused)) void silo_combine_end_SUFFIX(silo_combine_SUFFIX *table,
                                                                      const int order) {
    for (int64_t i = 0; i < table->count; i++) {
        silo_combine_flush_SUFFIX(table, table->used[i], order);
        table->lines[table->used[i]] = 0;
    }
    table->count = 0;
}
