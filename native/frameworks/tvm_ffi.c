#include "tvm_ffi.h"

#include "base.h"
#include "dlpack.h"
#include "error.h"
#include "memory_types.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the ABI of tvm-ffi 0.1.15: tvm/ffi/c_api.h and tvm/ffi/extra/c_env_api.h ---- */

/* The values of tvm-ffi's enum TVMFFITypeIndex. */
enum {
    FFI_NONE = 0,
    FFI_INT = 1,
    FFI_BOOL = 2,
    FFI_FLOAT = 3,
    FFI_POINTER = 4,
    FFI_DATA_TYPE = 5,
    FFI_DEVICE = 6,
    FFI_DLTENSOR = 7,
    FFI_RAW_TEXT = 8,
    FFI_SMALL_TEXT = 11,
    FFI_TEXT = 65,
    FFI_SHAPE = 69,
    FFI_TENSOR = 70,
    FFI_ARRAY = 71,
    FFI_LIST = 75,
    FFI_BIG_INT = 78,
};

/* tvm-ffi's struct TVMFFIAny: a value of any type. */
struct ffi_any {
    int32_t type;
    uint32_t length; /* length of a small text, else 0 */
    union {
        int64_t integer;
        double real;
        void *pointer;
        const char *text;
        const char *object;
        struct dl_dtype dtype;
        char small[8]; /* at most 7 bytes and a final zero */
    };
};
_Static_assert(sizeof(struct ffi_any) == 16, "ABI of TVM-FFI");

/* The size of tvm-ffi's TVMFFIObject, the header of every object; the members of the object follow
 * it. */
enum { FFI_HEADER = 24 };

/* tvm-ffi's structs TVMFFIByteArray and TVMFFIShapeCell, and the beginning of its TVMFFISeqCell. */
struct ffi_sequence {
    const void *data;
    int64_t count;
};

typedef void (*ffi_raise)(const char *kind, const char *message); /* TVMFFIErrorSetRaisedFromCStr */
typedef void *(*ffi_stream)(int32_t device_type, int32_t device_id); /* TVMFFIEnvGetStream */

/* ---- functions of the calling process ---- */

/* Finds a function of tvm-ffi. Python loads the library globally; another program may have loaded
 * it locally. */
static void *find(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        void *library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
        if (library != NULL) {
            found = dlsym(library, name);
            /* releases only this reference: the program keeps the library loaded */
            dlclose(library);
        }
    }
    return found;
}

/* Finds a function and stores it in `*place`. Searches again in each call until it is found,
 * because tvm-ffi may be loaded after this library. */
static void *kept(void **place, const char *name) {
    void *found = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (SILO_UNLIKELY(found == NULL)) {
        found = find(name);
        __atomic_store_n(place, found, __ATOMIC_RELEASE);
    }
    return found;
}

static void *current_stream(int32_t device_type, int32_t device_id) {
    static void *place;
    void *const found = kept(&place, "TVMFFIEnvGetStream");
    ffi_stream get;
    memcpy(&get, &found, sizeof get);
    return found == NULL ? NULL : get(device_type, device_id);
}

/* ---- errors ---- */

/* Returns the name of the Python exception class for an error code. tvm-ffi passes it as a text, so
 * that callers in other languages receive it, too. */
static const char *kind_of(int32_t code) {
    switch (code) {
    case SILO_ERROR_USAGE:
    case SILO_ERROR_MISSING:
    case SILO_ERROR_KIND:
    case SILO_ERROR_DTYPE:
        return "TypeError";
    case SILO_ERROR_NULL:
    case SILO_ERROR_MISALIGNED:
    case SILO_ERROR_SHAPE:
    case SILO_ERROR_GRID:
    case SILO_ERROR_EXPRESSION:
    case SILO_ERROR_WRONG_DEVICE:
        return "ValueError";
    case SILO_ERROR_MEMORY:
        return "MemoryError";
    default:
        return "RuntimeError";
    }
}

static SILO_NOINLINE int raise(silo_error *error) {
    static void *place;
    void *const found = kept(&place, "TVMFFIErrorSetRaisedFromCStr");
    /* `found` is NULL if tvm-ffi is not loaded; then no caller could read the error. */
    if (found != NULL) {
        ffi_raise set;
        memcpy(&set, &found, sizeof set);
        char *joined = NULL;
        if (error->details != NULL) {
            const size_t bytes = strlen(error->text) + strlen(error->details) + 2;
            joined = malloc(bytes);
            if (joined != NULL)
                snprintf(joined, bytes, "%s\n%s", error->text, error->details);
        }
        set(kind_of(error->code), joined != NULL ? joined : error->text);
        free(joined);
    }
    silo_error_clear(error);
    return -1;
}

static const char *name_of_type(int32_t type) {
    switch (type) {
    case FFI_NONE:
        return "None";
    case FFI_INT:
        return "an integer";
    case FFI_BOOL:
        return "a bool";
    case FFI_FLOAT:
        return "a float";
    case FFI_POINTER:
        return "an address, which does not say what it points at";
    case FFI_DATA_TYPE:
        return "a data type";
    case FFI_DEVICE:
        return "a device";
    case FFI_DLTENSOR:
    case FFI_TENSOR:
        return "a tensor";
    case FFI_RAW_TEXT:
    case FFI_SMALL_TEXT:
    case FFI_TEXT:
        return "a string";
    case FFI_SHAPE:
    case FFI_ARRAY:
    case FFI_LIST:
        return "a sequence";
    case FFI_BIG_INT:
        return "an integer of more than 64 bits";
    default:
        return "an object that no kernel takes";
    }
}

/* ---- one call ---- */

enum { MAX_DESCRIPTORS = 32, MAX_RANK = 5 };

struct call {
    const struct silo_framework_kernel *kernel;
    silo_error *error;
    const struct dl_tensor *first; /* the first tensor, which decides the device; NULL: none yet */
    const char *first_name;
    uint32_t descriptor_count;
    int64_t blocks[MAX_DESCRIPTORS][MAX_RANK];
};

static const struct dl_tensor *tensor_of(const struct ffi_any *given) {
    if (given->type == FFI_TENSOR)
        return (const struct dl_tensor *)(const void *)(given->object + FFI_HEADER);
    return given->type == FFI_DLTENSOR ? given->pointer : NULL;
}

static bool is_sequence(const struct ffi_any *given) {
    return given->type == FFI_SHAPE || given->type == FFI_ARRAY || given->type == FFI_LIST;
}

static struct ffi_sequence sequence_of(const struct ffi_any *given) {
    struct ffi_sequence made;
    memcpy(&made, given->object + FFI_HEADER, sizeof made);
    return made;
}

/* Reads at most `most` integers of a sequence. Returns their number, or -1 for a longer sequence or
 * any other value. */
static int integers_of(const struct ffi_any *given, int64_t *values, int most) {
    if (!is_sequence(given))
        return -1;
    const struct ffi_sequence of = sequence_of(given);
    if (of.count < 1 || of.count > most)
        return -1;
    for (int64_t i = 0; i < of.count; i++) {
        if (given->type == FFI_SHAPE) {
            values[i] = ((const int64_t *)of.data)[i];
        } else {
            const struct ffi_any *one = &((const struct ffi_any *)of.data)[i];
            if (one->type != FFI_INT)
                return -1;
            values[i] = one->integer;
        }
    }
    return (int)of.count;
}

/* Checks that all tensors of a call are on the same device. Memory that the host and GPUs share is
 * allowed with any device. */
static int place(struct call *call, const struct dl_tensor *tensor, const char *name) {
    if (call->first == NULL) {
        call->first = tensor;
        call->first_name = name;
        return 0;
    }
    const struct dl_device given = tensor->device, known = call->first->device;
    if (SILO_LIKELY(given.type == known.type && given.id == known.id))
        return 0;
    const struct silo_memory_type *const ours = silo_memory_type(given.type), *const theirs =
                                                                                  silo_memory_type(
                                                                                      known.type);
    if (ours->shared)
        return 0;
    if (theirs->shared) {
        call->first = tensor;
        call->first_name = name;
        return 0;
    }
    return silo_fail(
        call->error, SILO_ERROR_WRONG_DEVICE,
        "%s: argument '%s' is on %s:%d and '%s' on %s:%d; all arrays of one call are on "
        "one device",
        call->kernel->name, call->first_name, theirs->name, (int)known.id, name, ours->name,
        (int)given.id);
}

/* Returns the alignment in bytes of an element of this many bits. */
static unsigned element_alignment(unsigned bits) {
    return bits == 16 ? 2 : bits == 32 ? 4 : bits >= 64 ? 8 : 1;
}

static int read_tensor(struct call *call, const struct silo_framework_parameter *parameter,
                       const struct dl_tensor *tensor, silo_argument *made) {
    if (SILO_UNLIKELY(tensor == NULL))
        return silo_fail(call->error, SILO_ERROR_NULL,
                         "%s: argument '%s' is a tensor without a value", call->kernel->name,
                         parameter->name);
    if (SILO_UNLIKELY(tensor->dtype.lanes != 1))
        return silo_fail(call->error, SILO_ERROR_DTYPE,
                         "%s: argument '%s' has elements of %d lanes; kernels take elements of one",
                         call->kernel->name, parameter->name, (int)tensor->dtype.lanes);
    if (place(call, tensor, parameter->name) != 0)
        return -1;
    const char *data = tensor->data;
    if (data != NULL)
        data += tensor->byte_offset;
    const unsigned bytes = element_alignment(tensor->dtype.bits);
    if (SILO_UNLIKELY(((uintptr_t)data & (bytes - 1)) != 0))
        return silo_fail(
            call->error, SILO_ERROR_MISALIGNED,
            "%s: argument '%s' begins at an address that is not a multiple of %u, as its "
            "elements need: copy it to memory of its own",
            call->kernel->name, parameter->name, bytes);
    *made = silo_array(data, tensor->dtype.code << 8 | tensor->dtype.bits, tensor->ndim,
                       tensor->shape, tensor->strides);
    if (parameter->kind == SILO_FRAMEWORK_DESCRIPTOR)
        made->kind = SILO_ARGUMENT_DESCRIPTOR;
    return 0;
}

/* Reads a pair of a tensor and a block shape. */
static int read_descriptor(struct call *call, const struct silo_framework_parameter *parameter,
                           const struct ffi_any *given, silo_argument *made) {
    const struct ffi_sequence pair = sequence_of(given);
    const struct ffi_any *items = pair.data;
    if (given->type == FFI_SHAPE || pair.count != 2 || tensor_of(&items[0]) == NULL)
        return silo_fail(
            call->error, SILO_ERROR_KIND,
            "%s: argument '%s' is a sequence; a descriptor is a tensor, or the pair of a "
            "tensor and its block",
            call->kernel->name, parameter->name);
    if (call->descriptor_count == MAX_DESCRIPTORS)
        return silo_fail(call->error, SILO_ERROR_USAGE, "%s: more than %d descriptors in one call",
                         call->kernel->name, (int)MAX_DESCRIPTORS);
    int64_t *const block = call->blocks[call->descriptor_count++];
    const int rank = integers_of(&items[1], block, MAX_RANK);
    const struct dl_tensor *const tensor = tensor_of(&items[0]);
    if (rank != tensor->ndim)
        return silo_fail(
            call->error, SILO_ERROR_SHAPE,
            "%s: the block of argument '%s' is no sequence of %d integers, one an axis",
            call->kernel->name, parameter->name, (int)tensor->ndim);
    if (read_tensor(call, parameter, tensor, made) != 0)
        return -1;
    made->block = block;
    return 0;
}

static int read_text(struct call *call, const struct silo_framework_parameter *parameter,
                     const char *text, size_t length, silo_argument *made) {
    if (strnlen(text, length + 1) != length)
        return silo_fail(call->error, SILO_ERROR_KIND,
                         "%s: argument '%s' is a string with a zero in it", call->kernel->name,
                         parameter->name);
    *made = silo_text(text);
    return 0;
}

static int read_argument(struct call *call, const struct silo_framework_parameter *parameter,
                         const struct ffi_any *given, silo_argument *made) {
    switch (given->type) {
    case FFI_TENSOR:
    case FFI_DLTENSOR:
        return read_tensor(call, parameter, tensor_of(given), made);
    case FFI_INT:
        *made = parameter->kind == SILO_FRAMEWORK_FLOAT ? silo_float((double)given->integer)
                                                        : silo_int(given->integer);
        return 0;
    case FFI_FLOAT:
        *made = silo_float(given->real);
        return 0;
    case FFI_BOOL:
        *made = silo_bool(given->integer != 0);
        return 0;
    case FFI_NONE:
        *made = silo_none();
        return 0;
    case FFI_DATA_TYPE:
        *made = silo_type(given->dtype.code << 8 | given->dtype.bits);
        return 0;
    case FFI_SMALL_TEXT:
        return read_text(call, parameter, given->small, given->length, made);
    case FFI_RAW_TEXT:
        *made = silo_text(given->text);
        return 0;
    case FFI_TEXT: {
        const struct ffi_sequence bytes = sequence_of(given);
        return read_text(call, parameter, bytes.data, (size_t)bytes.count, made);
    }
    case FFI_SHAPE:
    case FFI_ARRAY:
    case FFI_LIST:
        if (parameter->kind == SILO_FRAMEWORK_DESCRIPTOR)
            return read_descriptor(call, parameter, given, made);
        break;
    default:
        break;
    }
    return silo_fail(call->error, SILO_ERROR_KIND, "%s: argument '%s' is %s", call->kernel->name,
                     parameter->name, name_of_type(given->type));
}

/* Sets `*queue` to the device of the tensors and its current stream. Fails if the call has no
 * tensor. */
static int queue_of(const struct call *call, silo_queue *queue) {
    if (call->first == NULL)
        return silo_fail(call->error, SILO_ERROR_KIND,
                         "%s: no argument is a tensor, so nothing says on which device to run",
                         call->kernel->name);
    const struct dl_device device = call->first->device;
    switch (device.type) {
    case SILO_DEVICE_CPU:
        *queue = (silo_queue){SILO_CPU, 0, NULL};
        return 0;
    case SILO_DEVICE_CUDA:
    case SILO_DEVICE_CUDA_HOST:
    case SILO_DEVICE_CUDA_MANAGED:
        *queue = (silo_queue){SILO_CUDA, device.id, current_stream(SILO_DEVICE_CUDA, device.id)};
        return 0;
    case SILO_DEVICE_ROCM:
    case SILO_DEVICE_ROCM_HOST:
        *queue = (silo_queue){SILO_ROCM, device.id, current_stream(SILO_DEVICE_ROCM, device.id)};
        return 0;
    default:
        return silo_fail(call->error, SILO_ERROR_WRONG_DEVICE,
                         "%s: argument '%s' is on %s:%d; kernels run on cpu, cuda and rocm",
                         call->kernel->name, call->first_name, silo_memory_type(device.type)->name,
                         (int)device.id);
    }
}

int silo_ffi_call(const struct silo_ffi_function *function, const void *given, int32_t count) {
    const struct silo_framework_kernel *const kernel = &function->kernel;
    const struct ffi_any *const values = given;
    silo_error error;
    error.code = 0;
    error.text[0] = 0;
    error.details = NULL;

    silo_kernel *const found = function->find(kernel->at, &error);
    if (SILO_UNLIKELY(found == NULL))
        return raise(&error);

    int64_t grid[3] = {1, 1, 1};
    const bool has_grid = count > 0 && integers_of(&values[count - 1], grid, 3) > 0;
    const uint32_t used = (uint32_t)count - (has_grid ? 1 : 0);
    if (SILO_UNLIKELY(used > kernel->count)) {
        silo_fail(
            &error, SILO_ERROR_USAGE,
            "%s takes %u arguments, and a tuple of one to three integers as its grid; %u given",
            kernel->name, kernel->count, used);
        return raise(&error);
    }

    struct call call;
    call.kernel = kernel;
    call.error = &error;
    call.first = NULL;
    call.descriptor_count = 0;
    silo_argument arguments[SILO_MAX_PARAMETERS];
    size_t filled = 0;
    for (uint32_t i = 0; i < used; i++) {
        const struct silo_framework_parameter *const parameter = &kernel->parameters[i];
        while (filled < parameter->place)
            arguments[filled++] = silo_absent_argument();
        if (read_argument(&call, parameter, &values[i], &arguments[filled++]) != 0)
            return raise(&error);
    }

    silo_queue queue;
    if (queue_of(&call, &queue) != 0)
        return raise(&error);
    const silo_call options = {grid, NULL, 0};
    if (SILO_UNLIKELY(
            silo_launch(found, &queue, arguments, filled, has_grid ? &options : NULL, &error) != 0))
        return raise(&error);
    return 0;
}
