#include "dynamic_layout.h"

enum { VECTOR_BITS = 128, STRIDE_ONE = 1, STRIDE_ZERO = 2, AXIS_FROM = 5, AXIS_BITS = 4 };
enum { DIVISOR_FROM = AXIS_FROM + AXIS_BITS * SILO_DYNAMIC_AXES };

static bool fits32(int64_t value) {
    return value == (int32_t)value;
}

uint64_t silo_dynamic_word(int32_t ndim, const int64_t *sizes, const int64_t *strides,
                           unsigned bits) {
    const bool vector = bits != 0 && bits <= VECTOR_BITS && (bits & (bits - 1)) == 0;
    const unsigned shift = vector ? (unsigned)__builtin_ctz(VECTOR_BITS / bits) : 0;
    const int64_t mask = (INT64_C(1) << shift) - 1;
    uint64_t word = (uint64_t)ndim | (uint64_t)shift << DIVISOR_FROM;
    bool wide_sizes = false, wide_offsets = false, empty = false, far = false;
    int64_t reach = 0;
    for (int32_t i = 0; i < ndim; i++) {
        const int64_t size = sizes[i], stride = strides[i];
        uint64_t axis = (size & mask) == 0;
        int64_t step;
        wide_sizes |= !fits32(size);
        wide_offsets |= !fits32(stride);
        empty |= size == 0;
        /* Sets `far` if a stride does not fit 32 bits or the largest offset overflows; `reach` is
         * then not used. */
        far |= !fits32(stride) ||
               __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &step) ||
               __builtin_add_overflow(reach, step, &reach);
        if (stride == 1 || stride == 0)
            axis |= (uint64_t)(stride == 1 ? STRIDE_ONE : STRIDE_ZERO) << 1;
        else
            axis |= (uint64_t)((stride & mask) == 0) << 3;
        word |= axis << (AXIS_FROM + AXIS_BITS * i);
    }
    wide_offsets |= !empty && (far || !fits32(reach));
    return word | (uint64_t)wide_sizes << 3 | (uint64_t)wide_offsets << 4;
}

struct silo_dynamic_layout silo_dynamic_of_word(uint64_t word) {
    const uint8_t divisor = (uint8_t)(1U << (word >> DIVISOR_FROM & 7));
    struct silo_dynamic_layout layout = {.rank = (uint8_t)(word & 7),
                                         .size_bits = word & 8 ? 64 : 32,
                                         .offset_bits = word & 16 ? 64 : 32};
    for (uint32_t i = 0; i < layout.rank && i < SILO_DYNAMIC_AXES; i++) {
        const unsigned bits = (unsigned)(word >> (AXIS_FROM + AXIS_BITS * i)) & 15,
                       stride = bits >> 1 & 3;
        layout.axes[i] = (struct silo_dynamic_axis){
            .divisor = bits & 1 ? divisor : 1,
            .stride_divisor = bits & 8 ? divisor : 1,
            .stride = stride == STRIDE_ONE    ? 1
                      : stride == STRIDE_ZERO ? 0
                                              : SILO_STRIDE_PASSED,
        };
    }
    return layout;
}

bool silo_dynamic_holds(const struct silo_dynamic_layout *code,
                        const struct silo_dynamic_layout *call) {
    if (code->rank != call->rank || call->size_bits > code->size_bits ||
        call->offset_bits > code->offset_bits)
        return false;
    for (uint32_t i = 0; i < code->rank; i++) {
        const struct silo_dynamic_axis *assumed = &code->axes[i], *passed = &call->axes[i];
        /* A stride of 0 is a multiple of any number. */
        const unsigned steps = passed->stride == 0 ? VECTOR_BITS : passed->stride_divisor;
        if (passed->divisor % assumed->divisor != 0 || steps % assumed->stride_divisor != 0 ||
            (assumed->stride != SILO_STRIDE_PASSED && assumed->stride != passed->stride))
            return false;
    }
    return true;
}

bool silo_dynamic_same(const struct silo_dynamic_layout *left,
                       const struct silo_dynamic_layout *right) {
    bool same = left->rank == right->rank && left->size_bits == right->size_bits &&
                left->offset_bits == right->offset_bits;
    for (uint32_t i = 0; same && i < left->rank; i++)
        same = left->axes[i].divisor == right->axes[i].divisor &&
               left->axes[i].stride == right->axes[i].stride &&
               left->axes[i].stride_divisor == right->axes[i].stride_divisor;
    return same;
}
