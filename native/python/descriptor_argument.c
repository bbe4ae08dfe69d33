#include "descriptor_argument.h"

#include "placement.h"
#include "stack.h"
#include "stand_in.h"

/* Raises the error of a descriptor that is not valid, and returns -1. The checks of native/core run
 * a second time here to make the error's text, so that valid descriptors need no memory for a text.
 */
static SILO_NOINLINE int refuse(const struct silo_plan *plan, int32_t index,
                                const struct silo_descriptor *descriptor, struct silo_dtype type) {
    silo_error error;
    silo_descriptor_check(descriptor, type, &error);
    return silo_refuse_descriptor(plan->kernel, plan->names[index], "%s", error.text);
}

static SILO_NOINLINE int refuse_block(const struct silo_plan *plan, int32_t index,
                                      const int64_t *block, uint32_t rank) {
    uint64_t bits;
    silo_error error;
    silo_descriptor_block_bits(block, rank, &bits, &error);
    return silo_refuse_descriptor(plan->kernel, plan->names[index], "%s", error.text);
}

/* Stores the block shape in the bits of the argument's key word; -1 with an exception set. */
static int read_block(const struct silo_plan *plan, int32_t index, struct silo_members *members,
                      uint32_t rank, uint64_t *bits) {
    int64_t block[SILO_MAX_RANK];
    const int count = silo_descriptor_block(members, block);
    if (count != (int)rank)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      count < 0
                                          ? "has no block shape of integers"
                                          : "has a block shape of another rank than its shape");
    return silo_descriptor_block_bits(block, rank, bits, NULL) == 0
               ? 0
               : refuse_block(plan, index, block, rank);
}

static int read_members(const struct silo_plan *plan, int32_t index, struct silo_members *members,
                        const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_descriptor *descriptor = &frame->descriptors[frame->descriptors_used];
    PyObject *base = silo_descriptor_base(members);
    if (base == NULL)
        return silo_refuse_descriptor(plan->kernel, plan->names[index], "has no base");
    if (SILO_UNLIKELY(silo_stood_for(base) != NULL)) {
        PyObject *real = Py_NewRef(silo_stood_for(base));
        Py_DECREF(base);
        base = real;
    }
    frame->holds.object[frame->holds.objects++] = base; /* held to the end of the call */
    const struct silo_adapter *how = silo_adapter_of(Py_TYPE(base));
    if (how == NULL)
        return -1;
    struct silo_view view;
    if (SILO_UNLIKELY(how->calls))
        silo_ask(frame, base);
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
    const int rank = silo_descriptor_extents(members, descriptor->shape);
    const int strides = rank < 0 ? -1 : silo_descriptor_strides(members, descriptor->strides);
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
    descriptor->address = view.address;
    descriptor->rank = (uint32_t)rank;
    descriptor->nan = (uint64_t)nan;
    descriptor->tf32 = (uint64_t)tf32;
    *silo_owner_of(plan, frame, frame->descriptors_used) =
        (struct silo_descriptor_owner){members->object, base};
    uint64_t block = 0;
    if (silo_descriptor_check(descriptor, view.dtype, NULL) != 0)
        return refuse(plan, index, descriptor, view.dtype);
    if (read_block(plan, index, members, descriptor->rank, &block) != 0)
        return -1;
    const int layout = adapter->laid_out ? silo_descriptor_layout(members) : 0;
    if (layout < 0)
        return silo_refuse_descriptor(plan->kernel, plan->names[index],
                                      "has a layout that is not one of a tensor map");
    block |= (uint64_t)layout << SILO_BLOCK_LAYOUT_SHIFT;
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
    struct silo_members members = silo_members_of(object);
    const int result = read_members(plan, index, &members, adapter, frame);
    if (SILO_UNLIKELY(members.ran_python))
        silo_ask(frame, object);
    Py_XDECREF(members.dict);
    return result;
}
