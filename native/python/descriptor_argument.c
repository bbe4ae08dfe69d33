#include "descriptor_argument.h"

#include "placement.h"
#include "stack.h"

/* What every target asks of a descriptor, which is what Triton asks when one is made. */
static int check(const struct silo_plan *plan, int32_t index, const struct silo_descriptor *one,
                 struct silo_dtype type) {
    const uint32_t rank = one->rank;
    if (one->address & 15)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has its base at %#llx, which is not a multiple of 16 bytes",
                                      (unsigned long long)one->address);
    if (one->address == 0)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has a base without memory");
    for (uint32_t i = 0; i < rank; i++) {
        if (one->shape[i] < 1 || one->shape[i] > INT32_MAX)
            return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                          "has shape[%u] = %lld; extents are 1 to 2^31 - 1", i,
                                          (long long)one->shape[i]);
    }
    if (one->strides[rank - 1] != 1)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has strides[%u] = %lld; the last axis is contiguous (1)",
                                      rank - 1, (long long)one->strides[rank - 1]);
    const int64_t bytes = type.bits / 8 ? type.bits / 8 : 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        const int64_t stride = one->strides[i];
        if (stride < 0 || stride >= (INT64_C(1) << 40) / bytes || (stride * bytes & 15) != 0)
            return silo_refuse_descriptor(
                plan->kernel, plan->names[index],
                "has strides[%u] = %lld elements of %lld bytes; a stride is a multiple "
                "of 16 bytes, from 0 to 2^40",
                i, (long long)stride, (long long)bytes);
    }
    if (one->nan && type.code != SILO_FLOAT && type.code != SILO_BFLOAT &&
        type.code < SILO_FLOAT8_E3M4)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "pads with NaN, and its elements are integers");
    return 0;
}

/* The block shape as bits of a guard word; -1 with an exception set. */
static int block_word(const struct silo_plan *plan, int32_t index,
                      const struct silo_members *members, uint32_t rank, uint64_t *word) {
    int64_t block[SILO_MAX_RANK];
    const int count = silo_descriptor_block(members, block);
    if (count != (int)rank)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      count < 0
                                          ? "has no block shape of integers"
                                          : "has a block shape of another rank than its shape");
    uint64_t bits = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (block[i] < 1 || block[i] > INT64_C(1) << 30 || (block[i] & (block[i] - 1)) != 0)
            return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                          "has block_shape[%u] = %lld, which is not a power of two",
                                          i, (long long)block[i]);
        bits |= (uint64_t)__builtin_ctzll((uint64_t)block[i]) << (3 + 5 * i);
    }
    *word = bits << SILO_BLOCK_SHIFT;
    return 0;
}

static int read_members(const struct silo_plan *plan, int32_t index,
                        const struct silo_members *members, const struct silo_adapter *adapter,
                        struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_descriptor *one = &frame->descriptors[frame->descriptors_used];
    PyObject *base = silo_descriptor_base(members);
    if (base == NULL)
        return silo_refuse_descriptor(plan->kernel, plan->names[index], "has no base");
    frame->holds.object[frame->holds.objects++] = base; /* to the end of the call */
    const struct silo_adapter *how = silo_adapter_of(Py_TYPE(base));
    if (how == NULL)
        return -1;
    struct silo_view view;
    if (how->kind == SILO_ADAPT_NOTHING || how->kind >= SILO_ADAPT_INT ||
        silo_view_read(base, how, &view, &frame->holds) != 0 || view.dtype.bits == 0)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has a base that is not an array of numbers");
    if (parameter->type.bits != 0 &&
        (parameter->type.bits != view.dtype.bits || parameter->type.code != view.dtype.code))
        return silo_refuse_descriptor(
            plan->kernel, plan->names[index], "has elements of type %s; %s is declared",
            silo_dtype_name(view.dtype), silo_dtype_name(parameter->type));
    if (view.readonly && (parameter->flags & SILO_PARAMETER_WRITES))
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has a read-only base, and the kernel writes it");
    const int rank = silo_descriptor_extents(members, one->shape);
    const int strides = rank < 0 ? -1 : silo_descriptor_strides(members, one->strides);
    if (rank < 0 || strides != rank)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      rank < 0      ? "has no shape of 1 to 5 integers"
                                      : strides < 0 ? "has no strides of 1 to 5 integers"
                                                    : "has another number of strides than extents");
    const int nan = silo_descriptor_pads(members);
    const int tf32 = nan < 0 ? -1 : adapter->rounds ? silo_descriptor_rounds(members) : 0;
    if (tf32 < 0)
        return silo_refuse_descriptor(
            plan->kernel, plan->names[index],
            "has no padding of 'zero' or 'nan', or no yes or no about tf32");
    one->address = view.address;
    one->rank = (uint32_t)rank;
    one->nan = (uint64_t)nan;
    one->tf32 = (uint64_t)tf32;
    one->object = members->object;
    one->base = base;
    uint64_t block = 0;
    if (check(plan, index, one, view.dtype) != 0 ||
        block_word(plan, index, members, one->rank, &block) != 0)
        return -1;
    if ((view.device_type != frame->device_type || view.device_id != frame->device_id) &&
        silo_merge_device(plan, index, &view, how, frame) != 0)
        return -1;
    frame->slots[index] = frame->descriptors_used++;
    frame->key[index] = SILO_CODE(SILO_VALUE_DESCRIPTOR, view.dtype.code, view.dtype.bits,
                                  SILO_FLAG_ALIGNED16 | (view.readonly ? SILO_FLAG_READONLY : 0U)) |
                        block;
    return 0;
}

int silo_read_descriptor(const struct silo_plan *plan, int32_t index, PyObject *object,
                         const struct silo_adapter *adapter, struct silo_frame *frame) {
    if (adapter->kind != SILO_ADAPT_DESCRIPTOR)
        return silo_read_error(plan, index, object);
    if (frame->descriptors_used == SILO_MAX_DESCRIPTORS)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "is one too many: a call has at most %d",
                                      SILO_MAX_DESCRIPTORS);
    if (silo_stack_check() != 0)
        return -1;
    const struct silo_members members = silo_members_of(object);
    const int result = read_members(plan, index, &members, adapter, frame);
    Py_XDECREF(members.dict);
    return result;
}
