#include "bundle_launch.h"

#include "bundle_grid.h"
#include "cpu_launch.h"
#include "scratch.h"
#include "tagged_error.h"
#include "value_text.h"

#include <stdio.h>

/* ---- errors ---- */

/* Translates a GPU driver's error code to enum silo_code; the CUDA and HIP drivers use the same
 * numbers. */
static int code_of(const struct silo_gpu *gpu, int driver_code) {
    enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400, TOO_MANY_RESOURCES = 701, DESTROYED = 709 };
    switch (driver_code) {
    case SILO_GPU_OUT_OF_MEMORY:
        return SILO_ERROR_MEMORY;
    case SILO_GPU_NOT_INITIALIZED:
        return gpu->inherited ? SILO_ERROR_FORKED : SILO_ERROR_LAUNCH;
    case SILO_GPU_ILLEGAL_ADDRESS:
    case SILO_GPU_ASSERT:
    case SILO_GPU_LAUNCH_FAILED:
        return SILO_ERROR_FAULT;
    case INVALID_CONTEXT:
    case INVALID_HANDLE:
    case DESTROYED:
        return SILO_ERROR_WRONG_DEVICE;
    case TOO_MANY_RESOURCES:
        return SILO_ERROR_LIMIT;
    default:
        return SILO_ERROR_LAUNCH;
    }
}

int silo_call_cpu_code(int code) {
    switch (code) {
    case SILO_CPU_NO_MEMORY:
        return SILO_ERROR_MEMORY;
    case SILO_CPU_FORKED:
        return SILO_ERROR_FORKED;
    case SILO_CPU_REFUSED:
    case SILO_CPU_INTERRUPTED:
        return SILO_ERROR_LAUNCH;
    default:
        return SILO_ERROR_FAULT;
    }
}

static SILO_NOINLINE int launch_error(const struct silo_served *served,
                                      const struct silo_launch *launch, int code,
                                      silo_error *error) {
    const struct silo_used_device *where = served->where;
    const char *hint = "";
    const int silo_code = where->gpu == NULL ? silo_call_cpu_code(code) : code_of(where->gpu, code);
    if (silo_code == SILO_ERROR_WRONG_DEVICE)
        hint = "; the stream is to be one of the device's primary context";
    struct silo_wording config = {0};
    /* the message of this thread's last driver call */
    const char *message = where->driver->error_text(code);
    silo_config_text(&config, served->variant->config);
    silo_fail_driver(error, silo_code, code,
                     "%s: %s (code %d) from '%s' on %s:%d; grid=(%u, %u, %u), config %s%s",
                     served->variant->kernel.data, message, code,
                     served->variant->launch->entry.data, where->driver->name, (int)where->index,
                     launch->grid[0], launch->grid[1], launch->grid[2], silo_wording_read(&config),
                     hint);
    silo_wording_clear(&config);
    return -1;
}

/* ---- parts of a launch ---- */

/* Refuses a null pointer to memory that the kernel reads or writes, unless the array is empty. */
static SILO_NOINLINE int check_null(const struct silo_kernel_call *call, int32_t index,
                                    silo_error *error) {
    const silo_argument *argument = silo_tagged_argument(&call->tagged, index);
    if (silo_code_kind(call->tagged.key[index]) != SILO_VALUE_POINTER)
        return 0; /* the argument is None */
    for (int32_t axis = 0; argument->kind == SILO_ARGUMENT_ARRAY && axis < argument->rank; axis++)
        if (argument->shape[axis] == 0)
            return 0;
    return silo_tagged_fail(call->tagged.intake, index, argument, SILO_ERROR_NULL,
                            "memory, which the kernel reads or writes", error);
}

/* Memory for the encoded tensor maps of a launch, on the stack. */
struct map_room {
    const struct silo_kernel_call *call;
    const struct silo_served *served;
    silo_error *error;
    uint32_t used;
    _Alignas(SILO_MAP_ALIGN) uint8_t maps[SILO_MAX_DESCRIPTORS][SILO_MAP_BYTES];
};

/* Fills `out` for the tensor map of an array argument. Returns -1 with an error text that the
 * caller puts behind the argument's name. */
static int describe_array(const struct silo_tagged *tagged, int32_t slot,
                          const struct silo_map_form *form, struct silo_descriptor *out,
                          silo_error *error) {
    const silo_argument *argument = silo_tagged_argument(tagged, slot);
    const bool shaped = argument->kind == SILO_ARGUMENT_ARRAY;
    int64_t room[SILO_MAX_AXES];
    if (!shaped && silo_map_reads_shape(form))
        return silo_fail(error, SILO_ERROR_SHAPE,
                         "is given without a shape, of which its tensor map is made");
    return silo_map_of_array(form, tagged->slots[slot], shaped ? argument->rank : 0,
                             argument->shape, shaped ? silo_tagged_strides(argument, room) : room,
                             out, error);
}

static void *encode_map(void *context, int32_t slot, const struct silo_map_form *form) {
    struct map_room *room = context;
    const struct silo_tagged *tagged = &room->call->tagged;
    const struct silo_descriptor *descriptor;
    struct silo_descriptor array;
    silo_error failure = {.code = SILO_OK};
    void *map = room->maps[room->used++]; /* a kernel has at most SILO_MAX_DESCRIPTORS maps */
    int result = 0;
    if (form->of_array) {
        descriptor = &array;
        result = describe_array(tagged, slot, form, &array, &failure);
    } else {
        descriptor = &tagged->descriptors[tagged->slots[slot]];
    }
    if (result == 0)
        result =
            silo_tensor_map_encode(room->served->function.device, form, descriptor, map, &failure);
    if (result == 0)
        return map;
    silo_fail_driver(room->error, failure.code, failure.driver_code, "%s: %s '%s' %s",
                     tagged->intake->kernel, form->of_array ? "argument" : "the tensor descriptor",
                     silo_intake_name(tagged->intake, slot), failure.text);
    return NULL;
}

static int hand_over(const struct silo_kernel_call *call, struct silo_served *served,
                     const int64_t dims[3], void **params, silo_error *error) {
    const struct silo_launch launch = {
        .function = &served->function,
        .grid = {(uint32_t)dims[0], (uint32_t)dims[1], (uint32_t)dims[2]},
        .params = params,
        .stream = call->queue->stream,
    };
    const int code = served->where->driver->launch(&launch);
    return SILO_LIKELY(code == 0) ? 0 : launch_error(served, &launch, code, error);
}

static struct silo_values values_of(const struct silo_kernel_call *call, uint64_t scratch[2]) {
    return (struct silo_values){call->tagged.slots, scratch, call->tagged.descriptors,
                                call->tagged.layouts};
}

/* Reports that the value of parameter `number` could not be computed. For a tensor map, the
 * function that encodes it has already filled `error`. */
static SILO_NOINLINE int refuse_packed(const struct silo_kernel_call *call,
                                       const struct silo_served *served,
                                       const struct silo_values *values, int32_t number,
                                       silo_error *error) {
    const struct silo_packed *packed = &served->packing.packed[number];
    if (packed->pack != SILO_PACK_STRUCT)
        return -1;
    const struct silo_intake *intake = call->tagged.intake;
    return silo_pack_refuse(&served->packing, values, number, intake->kernel,
                            silo_intake_name(intake, packed->slot), error);
}

/* Launches a kernel that needs tensor maps, structs or scratch memory. Kept out of line, because
 * most kernels need none of these. */
static SILO_NOINLINE int launch_with_more(const struct silo_kernel_call *call,
                                          struct silo_served *served, const int64_t dims[3],
                                          silo_error *error) {
    const struct silo_function *function = &served->function;
    const struct silo_bundle *bundle = call->kernel->bundle;
    const struct silo_scratch_source source = {bundle->options.context, bundle->options.allocate,
                                               bundle->options.release};
    const char *name = call->tagged.intake->kernel;
    const uint64_t each[2] = {function->scratch_bytes, function->profile_bytes};
    const uint32_t align[2] = {function->scratch_align, function->profile_align};
    struct silo_lease leases[2];
    uint64_t scratch[2] = {0, 0};
    struct map_room room = {.call = call, .served = served, .error = error};
    void **params = __builtin_alloca(served->packing.room * sizeof *params);
    int is_leased[2] = {0, 0}, result = 0;
    for (int i = 0; i < 2 && served->packing.takes_scratch && result == 0; i++) {
        int64_t bytes = 0;
        if (each[i] == 0)
            continue;
        result = silo_scratch_total(name, dims, each[i], &bytes, error);
        if (result == 0)
            result = silo_scratch_take(&source, function->device, call->queue->stream, name, bytes,
                                       align[i], &leases[i], error);
        is_leased[i] = result == 0;
        if (!is_leased[i])
            continue;
        scratch[i] = leases[i].address;
        if (leases[i].waits)
            silo_bundle_log(call->kernel->bundle, SILO_LOG_WARNING, SILO_LOGGED_WAITS,
                            "%s: this %s driver has no pool of memory, so each launch that needs "
                            "scratch memory waits until it has run: give an allocator",
                            name, function->device->gpu->name);
    }
    if (result == 0) {
        const struct silo_values values = values_of(call, scratch);
        const int32_t wrong = silo_pack(&served->packing, &values, params, encode_map, &room);
        if (wrong == SILO_ALL_PACKED)
            result = hand_over(call, served, dims, params, error);
        else
            result = refuse_packed(call, served, &values, wrong, error);
    }
    for (int i = 0; i < 2; i++)
        if (is_leased[i])
            silo_scratch_give(&source, function->device, &leases[i]);
    return result;
}

static void *no_map(void *context, int32_t slot, const struct silo_map_form *form) {
    (void)context, (void)slot, (void)form;
    return NULL;
}

/* ---- a launch ---- */

static SILO_NOINLINE int refuse_grid(const struct silo_kernel_call *call,
                                     const struct silo_served *served, const int64_t dims[3],
                                     silo_error *error) {
    const struct silo_grid_fault fault = silo_grid_limits(&served->function, dims);
    return silo_grid_refuse(&fault, call->tagged.intake->kernel, dims, NULL, error);
}

/* Sets `dims` to the grid that the call gives, or else to the declared grid. */
SILO_INLINE int find_grid(const struct silo_kernel_call *call, const struct silo_served *served,
                          int64_t dims[3], silo_error *error) {
    const struct silo_tagged *tagged = &call->tagged;
    if (call->options->grid != NULL)
        return silo_call_given_grid(call, dims, error);
    if (served->grid.usual &&
        silo_grid_usual(&served->grid, tagged->intake->count, tagged->slots, tagged->key, dims))
        return 0;
    return silo_call_declared_grid(call, &served->grid, dims, error);
}

SILO_INLINE int check_nulls(const struct silo_kernel_call *call, const struct silo_served *served,
                            silo_error *error) {
    for (uint32_t i = 0; i < served->memory_count; i++)
        if (SILO_UNLIKELY(call->tagged.slots[served->memory[i]] == 0) &&
            check_null(call, served->memory[i], error) != 0)
            return -1;
    return 0;
}

int silo_call_launch(struct silo_kernel_call *call, struct silo_served *served, silo_error *error) {
    const struct silo_tagged *tagged = &call->tagged;
    int64_t dims[3];
    if (SILO_UNLIKELY(find_grid(call, served, dims, error) != 0))
        return -1;
    const enum silo_grid_state state = silo_grid_check(&served->function, dims);
    if (SILO_UNLIKELY(state != SILO_GRID_FITS))
        return state == SILO_GRID_EMPTY ? 0 : refuse_grid(call, served, dims, error);
    if (SILO_UNLIKELY(check_nulls(call, served, error) != 0))
        return -1;
    if (served->where->gpu != NULL && call->queue->stream != NULL)
        silo_binary_launched_on(served->code->binary, call->queue->stream);
    if (SILO_UNLIKELY(served->packing.takes_scratch || served->packing.maps != NULL ||
                      served->packing.structs != NULL))
        return launch_with_more(call, served, dims, error);
    uint64_t scratch[2] = {0, 0};
    void *params[SILO_MAX_PARAMETERS];
    const struct silo_values values = values_of(call, scratch);
    if (SILO_UNLIKELY(silo_pack(&served->packing, &values, params, no_map, NULL) !=
                      SILO_ALL_PACKED))
        return silo_fail(error, SILO_ERROR_INTERNAL, "%s: an argument could not be passed",
                         tagged->intake->kernel);
    return hand_over(call, served, dims, params, error);
}

/* Copies the bytes of each parameter to its offset (`places`) after the struct `values`. `room` is
 * memory for tensor maps, or NULL if the kernel takes none. */
static int copy_parameters(const struct silo_kernel_call *call, const struct silo_served *served,
                           const struct silo_parameter_place *places,
                           struct silo_plan_values *values, struct map_room *room,
                           silo_error *error) {
    const struct silo_packing *packing = &served->packing;
    uint64_t scratch[2] = {0, 0};
    void **params = __builtin_alloca((packing->room + 1) * sizeof *params);
    const struct silo_values sources = values_of(call, scratch);
    const int32_t wrong =
        silo_pack(packing, &sources, params, room != NULL ? encode_map : no_map, room);
    if (SILO_UNLIKELY(wrong != SILO_ALL_PACKED))
        return refuse_packed(call, served, &sources, wrong, error);
    for (uint32_t i = 0; i < packing->count; i++)
        memcpy((uint8_t *)(values + 1) + places[i].offset, params[i], places[i].size);
    return 0;
}

static SILO_NOINLINE int copy_with_maps(const struct silo_kernel_call *call,
                                        const struct silo_served *served,
                                        const struct silo_parameter_place *places,
                                        struct silo_plan_values *values, silo_error *error) {
    struct map_room room = {.call = call, .served = served, .error = error};
    return copy_parameters(call, served, places, values, &room, error);
}

int silo_call_values(struct silo_kernel_call *call, struct silo_served *served,
                     const struct silo_parameter_place *places, struct silo_plan_values *values,
                     silo_error *error) {
    int64_t dims[3];
    if (find_grid(call, served, dims, error) != 0)
        return -1;
    const enum silo_grid_state state = silo_grid_check(&served->function, dims);
    if (SILO_UNLIKELY(state == SILO_GRID_REFUSED))
        return refuse_grid(call, served, dims, error);
    values->enabled = state == SILO_GRID_FITS;
    if (!values->enabled)
        return 0;
    for (int axis = 0; axis < 3; axis++)
        values->grid[axis] = (uint32_t)dims[axis];
    if (check_nulls(call, served, error) != 0)
        return -1;
    return SILO_UNLIKELY(served->packing.maps != NULL)
               ? copy_with_maps(call, served, places, values, error)
               : copy_parameters(call, served, places, values, NULL, error);
}
