#include "tensor_map.h"

#include "device.h"

#include <stdio.h>

enum {
    INTERLEAVE_NONE = 0,
    L2_PROMOTION_128B = 2,
    FILL_ZERO = 0,
    FILL_NAN = 1,
    TYPE_TF32 = 11,
    TYPES = 16, /* number of values of CUtensorMapDataType */
    SWIZZLES = 4,
    MOST_BOX = 256, /* the most elements of a box along an axis */
};

static int refuse_box(const struct silo_map_form *form, silo_error *error) {
    char extents[64];
    int length = 0;
    for (uint32_t i = 0; i < form->rank; i++)
        length += snprintf(extents + length, sizeof extents - (size_t)length, "%s%u", i ? ", " : "",
                           form->box[i]);
    return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                     "its box [%s] has more than %d elements along an axis", extents, MOST_BOX);
}

int silo_map_form_check(const struct silo_map_form *form, silo_error *error) {
    /* The most bytes of the box along its innermost axis, for each swizzle; 0: no limit. */
    static const uint32_t widest[SWIZZLES] = {0, 32, 64, 128};
    if (form->rank < 1 || form->rank > SILO_MAX_RANK)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "its box has %u dimensions; there are 1 to "
                         "%d",
                         form->rank, SILO_MAX_RANK);
    if (form->swizzle < 0 || form->swizzle >= SWIZZLES || form->element_type < 0 ||
        form->element_type >= TYPES)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "there is no swizzle %d or no element type %d", form->swizzle,
                         form->element_type);
    for (uint32_t i = 0; i < form->rank; i++) {
        if (form->box[i] < 1 || form->box[i] > MOST_BOX)
            return refuse_box(form, error);
    }
    const uint64_t width = (uint64_t)form->box[form->rank - 1] * form->element_bytes;
    const uint32_t limit = widest[form->swizzle];
    if (limit != 0 && width > limit)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "its box is %llu bytes wide, and a swizzle of %u bytes takes at most that",
                         (unsigned long long)width, limit);
    if (width % 16 != 0)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "its box is %llu bytes wide, which is not a multiple of 16",
                         (unsigned long long)width);
    return 0;
}

/* ---- arrays ---- */

bool silo_map_reads_shape(const struct silo_map_form *form) {
    for (uint32_t i = 0; i < form->rank; i++) {
        if (form->axes[i] != SILO_NO_AXIS)
            return true;
    }
    return false;
}

/* Reports a wrong extent or stride (`noun`: "shape", "strides") of an array. */
static int refuse_axis(silo_error *error, const char *noun, int32_t axis, int64_t value,
                       const char *expected) {
    if (axis == SILO_NO_AXIS)
        return silo_fail(error, SILO_ERROR_SHAPE, "is taken with %s %lld; %s", noun,
                         (long long)value, expected);
    return silo_fail(error, SILO_ERROR_SHAPE, "has %s[%d] = %lld; %s", noun, (int)axis,
                     (long long)value, expected);
}

int silo_map_of_array(const struct silo_map_form *form, uint64_t address, int32_t ndim,
                      const int64_t *sizes, const int64_t *strides, struct silo_descriptor *out,
                      silo_error *error) {
    memset(out, 0, sizeof *out);
    out->address = address;
    out->rank = form->rank;
    if (address == 0)
        return silo_fail(error, SILO_ERROR_NULL, "has no memory, which its tensor map needs");
    if (address & 15)
        return silo_fail(error, SILO_ERROR_MISALIGNED,
                         "lies at %#llx, which is not a multiple of 16 bytes, as its tensor map "
                         "needs it: copy it to memory of its own",
                         (unsigned long long)address);
    for (uint32_t i = form->rank; i-- > 0;) { /* innermost axis first, so that the error for a
                                                 transposed array names the actual cause */
        const int32_t axis = form->axes[i];
        const bool innermost = i + 1 == form->rank;
        if (axis != SILO_NO_AXIS && (axis < 0 || axis >= ndim))
            return silo_fail(error, SILO_ERROR_SHAPE,
                             "has %d dimensions, and its tensor map is made of axis %d", (int)ndim,
                             (int)axis);
        const int64_t size = axis == SILO_NO_AXIS ? form->shape[i] : sizes[axis];
        int64_t stride = axis == SILO_NO_AXIS ? form->strides[i] : strides[axis];
        if (size < 1 || size > INT32_MAX)
            return refuse_axis(error, "shape", axis, size,
                               "a tensor map's extents are 1 to 2^31 - 1");
        if (size == 1) /* the stride of an axis of one element is never used */
            stride = innermost ? 1 : 0;
        if (innermost && stride != 1)
            return refuse_axis(error, "strides", axis, stride,
                               "the kernel's code takes an array that is contiguous (1) along "
                               "this axis");
        if (!innermost && (stride < 0 || stride >= (INT64_C(1) << 40) / form->element_bytes ||
                           ((uint64_t)stride * form->element_bytes & 15) != 0))
            return refuse_axis(error, "strides", axis, stride,
                               "a stride of a tensor map is a multiple of 16 bytes, from 0 to "
                               "2^40");
        out->shape[i] = size;
        out->strides[i] = stride;
    }
    return 0;
}

/* ---- encoding ---- */

/* Clears a bit that drivers up to 13.1 wrongly set in maps of arrays below 128 KiB. CUTLASS and
 * Triton clear it, too. */
static void mend(void *map, const struct silo_map_form *form, const uint64_t *sizes,
                 const uint64_t *strides) {
    uint64_t last = (sizes[0] - 1) * form->element_bytes, word;
    for (uint32_t i = 1; i < form->rank; i++)
        last += (sizes[i] - 1) * strides[i - 1];
    if (last + 1 >= 128 * 1024)
        return;
    memcpy(&word, (char *)map + 8, sizeof word);
    word &= ~(UINT64_C(1) << 21);
    memcpy((char *)map + 8, &word, sizeof word);
}

static int refuse(const struct silo_map_form *form, const struct silo_descriptor *descriptor,
                  int code, silo_error *error) {
    char extents[128];
    int length = 0;
    for (uint32_t i = 0; i < form->rank; i++)
        length += snprintf(extents + length, sizeof extents - (size_t)length, "%s%lld/%u",
                           i ? ", " : "", (long long)descriptor->shape[i], form->box[i]);
    return silo_fail_driver(error, SILO_ERROR_SHAPE, code,
                            "cannot be used: the driver refuses its tensor map (error %d): "
                            "extents/box %s, elements of %u bytes and type %d, swizzle %d",
                            code, extents, form->element_bytes, form->element_type, form->swizzle);
}

/* The device's context is made current, because the driver requires a current context (although it
 * does not use the context), and a thread that has not launched anything has none. */
int silo_tensor_map_encode(struct silo_gpu_device *device, const struct silo_map_form *form,
                           const struct silo_descriptor *descriptor, void *map, silo_error *error) {
    const struct silo_gpu *gpu = device->gpu;
    if (gpu->tensor_map_encode == NULL)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "needs a tensor map, and the CUDA driver is not open or older than 12.0");
    /* innermost axis first, as the driver expects */
    uint64_t sizes[SILO_MAX_RANK], strides[SILO_MAX_RANK];
    uint32_t box[SILO_MAX_RANK], steps[SILO_MAX_RANK];
    for (uint32_t i = 0; i < form->rank; i++) {
        const uint32_t axis = form->rank - 1 - i;
        sizes[i] = (uint64_t)descriptor->shape[axis];
        box[i] = form->box[axis];
        steps[i] = 1;
        strides[i] = axis > 0 ? (uint64_t)descriptor->strides[axis - 1] * form->element_bytes : 0;
    }
    if (form->fp4_padded)
        sizes[0] *= 2;
    struct silo_gpu_scope scope;
    int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return silo_gpu_fail(error, gpu, SILO_ERROR_LAUNCH, "making a context current", code);
    code = gpu->tensor_map_encode(map, descriptor->tf32 ? TYPE_TF32 : form->element_type,
                                  form->rank, (void *)(uintptr_t)descriptor->address, sizes,
                                  strides, box, steps, INTERLEAVE_NONE, form->swizzle,
                                  L2_PROMOTION_128B, descriptor->nan ? FILL_NAN : FILL_ZERO);
    silo_gpu_leave(&scope);
    if (code != 0)
        return refuse(form, descriptor, code, error);
    if (gpu->version <= 13010)
        mend(map, form, sizes, strides);
    return 0;
}
