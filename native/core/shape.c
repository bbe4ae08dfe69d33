#include "shape.h"

int silo_shape_check_rank(int64_t ndim, silo_error *error) {
    if (SILO_LIKELY(ndim >= 0 && ndim <= SILO_MAX_AXES))
        return 0;
    return silo_fail(error, SILO_ERROR_SHAPE, "the array has %lld dimensions; there are 0 to %d",
                     (long long)ndim, SILO_MAX_AXES);
}

int silo_shape_check(const int64_t *sizes, const int64_t *strides, int32_t ndim, int64_t unit,
                     silo_error *error) {
    int64_t elements = 1, reach = 0;
    bool empty = false, overflow = false;
    for (int32_t i = 0; i < ndim; i++) {
        const int64_t size = sizes[i];
        if (SILO_UNLIKELY(size < 0))
            return silo_fail(error, SILO_ERROR_SHAPE, "its extent %d is %lld, which is negative",
                             (int)i, (long long)size);
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(elements, size, &elements);
        if (strides != NULL && size > 1) {
            int64_t step;
            if (strides[i] == INT64_MIN)
                overflow = true;
            else
                overflow |= __builtin_mul_overflow(
                                size - 1, strides[i] < 0 ? -strides[i] : strides[i], &step) ||
                            __builtin_add_overflow(reach, step, &reach);
        }
    }
    if (strides == NULL)
        reach = elements;
    overflow |= __builtin_mul_overflow(reach, unit != 0 ? unit : 1, &reach);
    if (SILO_UNLIKELY(overflow && !empty))
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "its extents and strides reach beyond any memory");
    return 0;
}

void silo_shape_compact(const int64_t *sizes, int32_t ndim, int64_t *strides) {
    int64_t step = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        strides[i] = step;
        if (__builtin_mul_overflow(step, sizes[i], &step))
            step = 0; /* the array is empty */
    }
}

int silo_dlpack_check(const struct dl_tensor *tensor, silo_error *error) {
    const int32_t ndim = tensor->ndim;
    if (silo_shape_check_rank(ndim, error) != 0)
        return -1;
    if (SILO_UNLIKELY(ndim > 0 && tensor->shape == NULL))
        return silo_fail(error, SILO_ERROR_SHAPE, "the array has %d dimensions and no shape",
                         (int)ndim);
    uint64_t end;
    if (SILO_UNLIKELY(
            __builtin_add_overflow((uint64_t)(uintptr_t)tensor->data, tensor->byte_offset, &end)))
        return silo_fail(error, SILO_ERROR_SHAPE, "its byte offset %llu leads beyond any memory",
                         (unsigned long long)tensor->byte_offset);
    return silo_shape_check(tensor->shape, tensor->strides, ndim,
                            (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8, error);
}

int silo_shape_of_dlpack(const struct dl_tensor *tensor, struct silo_shape *shape,
                         silo_error *error) {
    if (silo_dlpack_check(tensor, error) != 0)
        return -1;
    shape->ndim = tensor->ndim;
    shape->itemsize = tensor->dtype.bits * tensor->dtype.lanes / 8;
    for (int32_t i = 0; i < tensor->ndim; i++)
        shape->sizes[i] = tensor->shape[i];
    if (tensor->strides == NULL)
        silo_shape_compact(shape->sizes, shape->ndim, shape->strides);
    for (int32_t i = 0; tensor->strides != NULL && i < tensor->ndim; i++)
        shape->strides[i] = tensor->strides[i];
    return 0;
}

bool silo_shape_in_range32(const int64_t *sizes, const int64_t *strides, int32_t ndim,
                           int32_t itemsize) {
    uint64_t last = 0; /* index of the last element; every step is checked for overflow, because the
                          caller has not checked extents and strides */
    if (itemsize == 0)
        return false;
    for (int32_t i = 0; i < ndim; i++) {
        uint64_t step;
        if (sizes[i] == 0)
            return true;
        if (sizes[i] < 0 || strides[i] < 0 ||
            __builtin_mul_overflow((uint64_t)sizes[i] - 1, (uint64_t)strides[i], &step) ||
            __builtin_add_overflow(last, step, &last) || last > INT32_MAX)
            return false;
    }
    return (last + 1) * (uint64_t)itemsize <= INT32_MAX;
}
