#include "tensor_map.h"

#include "device.h"

#include <stdio.h>

enum {
    INTERLEAVE_NONE = 0,
    L2_PROMOTION_128B = 2,
    FILL_ZERO = 0,
    FILL_NAN = 1,
    TYPE_TF32 = 11,
    TYPES = 16, /* of CUtensorMapDataType */
    SWIZZLES = 4,
    MOST_BOX = 256, /* elements along an axis */
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
    /* Bytes that the box may be wide along its innermost axis, by swizzle; 0: no limit. */
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

/* Maps made by drivers up to 13.1 of arrays below 128 KiB have a bit that must not be set; CUTLASS
 * and Triton clear it too. */
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

/* The driver looks at a context, though it makes none of it: a thread that has launched nothing has
 * none. */
int silo_tensor_map_encode(struct silo_gpu_device *device, const struct silo_map_form *form,
                           const struct silo_descriptor *descriptor, void *map, silo_error *error) {
    const struct silo_gpu *gpu = device->gpu;
    if (gpu->tensor_map_encode == NULL)
        return silo_fail(error, SILO_ERROR_UNSUPPORTED,
                         "needs a tensor map, and the CUDA driver is not open or older than 12.0");
    uint64_t sizes[SILO_MAX_RANK], strides[SILO_MAX_RANK]; /* innermost first, as the driver's */
    uint32_t box[SILO_MAX_RANK], steps[SILO_MAX_RANK];
    for (uint32_t i = 0; i < form->rank; i++) {
        const uint32_t own = form->rank - 1 - i;
        sizes[i] = (uint64_t)descriptor->shape[own];
        box[i] = form->box[own];
        steps[i] = 1;
        strides[i] = own > 0 ? (uint64_t)descriptor->strides[own - 1] * form->element_bytes : 0;
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
