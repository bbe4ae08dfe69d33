#include "xla_call.h"

#include "scratch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int32_t silo_xla_minor;
silo_xla_ask *silo_xla_resolver;

/* ---- the table ---- */

#define BUCKETS 4096

/* Hash lists that only grow at their heads, so they are read without a lock. */
static struct silo_xla_call *buckets[BUCKETS];

/* Calls that were found earlier, indexed by the address of the frame's attributes, because the
 * address is known before the digest is read. A hint is used only if its digest equals the frame's.
 */
static const struct silo_xla_call *hints[64];

/* Returns the list for a digest. A few of its characters are enough, as digests are evenly
 * distributed. */
static struct silo_xla_call **bucket_of(const char *digest) {
    uint32_t number = 0;
    memcpy(&number, digest, sizeof number);
    return &buckets[(number ^ number >> 13 ^ number >> 21) % BUCKETS];
}

/* Compares two digests inline, because a call to memcmp would touch another cold cache line. */
SILO_INLINE bool same_digest(const char *left, const char *right) {
    uint64_t differs = 0;
    for (size_t i = 0; i < SILO_XLA_DIGEST; i += sizeof differs) {
        uint64_t a, b;
        memcpy(&a, left + i, sizeof a);
        memcpy(&b, right + i, sizeof b);
        differs |= a ^ b;
    }
    return differs == 0;
}

static const struct silo_xla_call *find_in(const struct silo_xla_call *call, const char *digest,
                                           int32_t device) {
    while (call != NULL && (call->device != device || !same_digest(call->digest, digest)))
        call = call->next;
    return call;
}

const struct silo_xla_call *silo_xla_find(const char *digest, int32_t device) {
    return find_in(__atomic_load_n(bucket_of(digest), __ATOMIC_ACQUIRE), digest, device);
}

bool silo_xla_publish(struct silo_xla_call *call) {
    struct silo_xla_call **head = bucket_of(call->digest);
    call->next = __atomic_load_n(head, __ATOMIC_ACQUIRE);
    do {
        if (find_in(call->next, call->digest, call->device) != NULL)
            return false;
    } while (!__atomic_compare_exchange_n(head, &call->next, call, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    return true;
}

/* ---- errors ---- */

/* Makes an error that XLA raises in its caller; a long text is cut. */
__attribute__((format(printf, 3, 4), cold)) static SILO_NOINLINE struct silo_xla_error *
refuse(const struct silo_xla_frame *frame, int32_t code, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct silo_xla_error_create request = {sizeof request, NULL, text, code};
    return frame->api->error_create(&request);
}

/* Writes a shape as "4 x 1000". */
static const char *shape_text(char *buffer, size_t size, const int64_t *dims, int64_t rank) {
    size_t used = 0;
    snprintf(buffer, size, "()");
    for (int64_t i = 0; i < rank && used < size; i++) {
        const int written =
            snprintf(buffer + used, size - used, "%s%lld", i > 0 ? " x " : "", (long long)dims[i]);
        used += written < 0 ? size : (size_t)written;
    }
    return buffer;
}

__attribute__((cold)) static SILO_NOINLINE struct silo_xla_error *
refuse_shape(const struct silo_xla_frame *frame, const struct silo_xla_call *call,
             const struct silo_xla_buffer *buffer, const struct silo_xla_array *array) {
    char expected[256], actual[256];
    return refuse(frame, SILO_XLA_INVALID,
                  "silo: %s: the program passes %s an array of XLA type %d and shape %s, and was "
                  "made for type %d and shape %s (with axes of vmap before it): the program was "
                  "changed after Silo made it",
                  call->kernel, buffer->name, (int)array->dtype,
                  shape_text(actual, sizeof actual, array->dims, array->rank), (int)buffer->dtype,
                  shape_text(expected, sizeof expected, buffer->dims, buffer->rank));
}

/* ---- a call ---- */

/* The axes that vmap put before an array's own, and the number of examples along them. */
struct batch {
    int64_t rank, count;
    int64_t dims[SILO_XLA_BATCH];
};

SILO_INLINE const struct silo_xla_array *array_at(const struct silo_xla_frame *frame,
                                                  const struct silo_xla_call *call, int32_t index) {
    return index < call->operands ? frame->args.values[index]
                                  : frame->rets.values[index - call->operands];
}

/* Returns whether an array has the dtype, the batch's axes and the shape that the call requires. */
SILO_INLINE bool fits(const struct silo_xla_buffer *buffer, const struct silo_xla_array *array,
                      const struct batch *batch, bool result) {
    if (SILO_UNLIKELY(array->dtype != buffer->dtype || array->rank != buffer->rank + batch->rank))
        return false;
    for (int32_t i = 0; i < buffer->rank; i++) {
        if (SILO_UNLIKELY(array->dims[batch->rank + i] != buffer->dims[i]))
            return false;
    }
    for (int64_t i = 0; i < batch->rank; i++) {
        if (array->dims[i] != batch->dims[i] && (result || array->dims[i] != 1))
            return false;
    }
    return true;
}

/* Reads the batch's axes from the last result, which has all examples. Returns an error, or NULL if
 * the result's shape fits. */
static SILO_NOINLINE struct silo_xla_error *read_batch(const struct silo_xla_frame *frame,
                                                       const struct silo_xla_call *call,
                                                       struct batch *batch) {
    /* Every call has at least one result. */
    const int32_t last = call->operands + call->results - 1;
    const struct silo_xla_array *array = array_at(frame, call, last);
    const struct silo_xla_buffer *buffer = &call->buffers[last];
    batch->rank = array->rank - buffer->rank;
    if (batch->rank < 0 || batch->rank > SILO_XLA_BATCH)
        return refuse_shape(frame, call, buffer, array);
    for (int32_t i = 0; i < buffer->rank; i++) {
        if (array->dims[batch->rank + i] != buffer->dims[i])
            return refuse_shape(frame, call, buffer, array);
    }
    for (int64_t i = 0; i < batch->rank; i++) {
        batch->dims[i] = array->dims[i];
        if (__builtin_mul_overflow(batch->count, array->dims[i], &batch->count))
            return refuse_shape(frame, call, buffer, array);
    }
    return NULL;
}

/* Returns the offset in bytes of example `number` of the batch in an array. */
static uint64_t example_at(const struct batch *batch, const int64_t *dims, uint64_t bytes,
                           int64_t number) {
    uint64_t offset = 0, stride = bytes;
    for (int64_t axis = batch->rank; axis-- > 0;) {
        const int64_t coordinate = number % batch->dims[axis];
        number /= batch->dims[axis];
        if (dims[axis] != 1)
            offset += (uint64_t)coordinate * stride;
        stride *= (uint64_t)dims[axis];
    }
    return offset;
}

/* Scratch memory of a GPU, taken for one launch; the memory is reused in the order of the stream.
 */
struct leases {
    struct silo_lease lease[2];
    int count;
};

static const struct silo_scratch_source of_driver;

static int take_scratch(const struct silo_xla_call *call, void *stream, uint64_t scratch[2],
                        struct leases *leases, silo_error *error) {
    const struct silo_function *function = call->function;
    const int64_t dims[3] = {call->grid[0], call->grid[1], call->grid[2]};
    const uint64_t each[2] = {function->scratch_bytes, function->profile_bytes};
    const uint32_t align[2] = {function->scratch_align, function->profile_align};
    for (int i = 0; i < 2; i++) {
        int64_t bytes = 0;
        if (each[i] == 0)
            continue;
        struct silo_lease *lease = &leases->lease[leases->count];
        if (silo_scratch_total(call->kernel, dims, each[i], &bytes, error) != 0 ||
            silo_scratch_take(&of_driver, function->device, stream, call->kernel, bytes, align[i],
                              lease, error) != 0)
            return -1;
        leases->count++;
        scratch[i] = lease->address;
    }
    return 0;
}

__attribute__((cold)) static SILO_NOINLINE struct silo_xla_error *
refuse_launch(const struct silo_xla_frame *frame, const struct silo_xla_call *call, int code) {
    const struct silo_driver *driver = call->binding->loaded->driver;
    return refuse(frame, SILO_XLA_INTERNAL, "silo: %s: %s (code %d) on %s; grid=(%u, %u, %u)",
                  call->kernel, driver->error_text(code), code, driver->name,
                  (unsigned)call->grid[0], (unsigned)call->grid[1], (unsigned)call->grid[2]);
}

/* Launches the kernel with the addresses in `words`; returns an error or NULL. */
SILO_INLINE struct silo_xla_error *launch(const struct silo_xla_frame *frame,
                                          const struct silo_xla_call *call, uint64_t *words,
                                          void *stream) {
    void *params[call->parameter_count + 1];
    for (uint32_t i = 0; i < call->parameter_count; i++)
        params[i] = words + call->places[i];
    const struct silo_launch request = {
        .function = call->function,
        .grid = {call->grid[0], call->grid[1], call->grid[2]},
        .params = params,
        .stream = stream,
    };
    const int code = call->launch(&request);
    return SILO_UNLIKELY(code != 0) ? refuse_launch(frame, call, code) : NULL;
}

/* Launches a kernel that needs scratch memory of the GPU; returns an error or NULL. */
static SILO_NOINLINE struct silo_xla_error *launch_with_scratch(const struct silo_xla_frame *frame,
                                                                const struct silo_xla_call *call,
                                                                uint64_t *words, void *stream) {
    struct leases leases = {.count = 0};
    silo_error error;
    struct silo_xla_error *result =
        take_scratch(call, stream, words + call->scratch_at, &leases, &error) != 0
            ? refuse(frame, SILO_XLA_EXHAUSTED, "silo: %s", error.text)
            : launch(frame, call, words, stream);
    while (leases.count > 0)
        silo_scratch_give(&of_driver, call->function->device, &leases.lease[--leases.count]);
    return result;
}

/* Checks that the call may use an array; returns an error or NULL. */
SILO_INLINE struct silo_xla_error *check_array(const struct silo_xla_frame *frame,
                                               const struct silo_xla_call *call, int32_t index,
                                               const struct batch *batch) {
    const struct silo_xla_array *array = array_at(frame, call, index);
    const struct silo_xla_buffer *buffer = &call->buffers[index];
    if (SILO_UNLIKELY(!fits(buffer, array, batch, index >= call->operands)))
        return refuse_shape(frame, call, buffer, array);
    if (buffer->aligned && SILO_UNLIKELY(((uintptr_t)array->data & 15) != 0 ||
                                         (batch->count != 1 && (buffer->bytes & 15) != 0)))
        return refuse(frame, SILO_XLA_PRECONDITION,
                      "silo: %s: its code was made for arrays at multiples of 16 bytes, and "
                      "XLA passes %s at %p: trace the program again and pass aligned arrays",
                      call->kernel, buffer->name, array->data);
    if (SILO_UNLIKELY(buffer->alias >= 0) && buffer->bytes != 0 && batch->count > 0) {
        const struct silo_xla_array *read = array_at(frame, call, buffer->alias);
        if (read->data != array->data)
            return refuse(frame, SILO_XLA_INTERNAL,
                          "silo: %s: XLA passes %s twice, at %p to be read and at %p to be "
                          "written, although the program says that it is one array",
                          call->kernel, buffer->name, read->data, array->data);
    }
    return NULL;
}

/* Makes a launch for each example of a batch; returns an error or NULL. */
static SILO_NOINLINE struct silo_xla_error *
run_batch(const struct silo_xla_frame *frame, const struct silo_xla_call *call, void *stream) {
    const int32_t total = call->operands + call->results;
    struct batch batch = {.rank = 0, .count = 1};
    struct silo_xla_error *error = read_batch(frame, call, &batch);
    for (int32_t i = 0; i < total && error == NULL; i++)
        error = check_array(frame, call, i, &batch);
    if (error != NULL || call->empty)
        return error;
    if (stream != NULL)
        silo_binary_launched_on(call->binding->loaded->binary, stream);
    uint64_t words[call->word_count];
    for (int64_t number = 0; number < batch.count && error == NULL; number++) {
        memcpy(words, call->words, sizeof words);
        for (int32_t i = 0; i < total; i++) {
            const struct silo_xla_array *array = array_at(frame, call, i);
            const struct silo_xla_buffer *buffer = &call->buffers[i];
            words[buffer->word] = (uint64_t)(uintptr_t)array->data +
                                  example_at(&batch, array->dims, buffer->bytes, number);
        }
        error = call->takes_scratch ? launch_with_scratch(frame, call, words, stream)
                                    : launch(frame, call, words, stream);
    }
    return error;
}

SILO_INLINE struct silo_xla_error *run(const struct silo_xla_frame *frame,
                                       const struct silo_xla_call *call, void *stream) {
    const int32_t total = call->operands + call->results;
    const struct batch none = {.rank = 0, .count = 1};
    struct silo_xla_error *error = NULL;
    if (SILO_UNLIKELY(frame->args.count != call->operands || frame->rets.count != call->results))
        return refuse(frame, SILO_XLA_INVALID,
                      "silo: %s: the program passes %lld arrays and takes %lld, and was made for "
                      "%d and %d: it was changed after Silo made it",
                      call->kernel, (long long)frame->args.count, (long long)frame->rets.count,
                      (int)call->operands, (int)call->results);
    if (SILO_UNLIKELY(array_at(frame, call, total - 1)->rank != call->buffers[total - 1].rank))
        return run_batch(frame, call, stream);
    uint64_t words[call->word_count];
    for (uint32_t i = 0; i < call->word_count; i++)
        words[i] = call->words[i];
    for (int32_t i = 0; i < total; i++) {
        error = check_array(frame, call, i, &none);
        if (SILO_UNLIKELY(error != NULL))
            return error;
        words[call->buffers[i].word] = (uint64_t)(uintptr_t)array_at(frame, call, i)->data;
    }
    if (SILO_UNLIKELY(call->empty))
        return NULL;
    if (stream != NULL)
        silo_binary_launched_on(call->binding->loaded->binary, stream);
    return SILO_UNLIKELY(call->takes_scratch) ? launch_with_scratch(frame, call, words, stream)
                                              : launch(frame, call, words, stream);
}

/* ---- the handlers ---- */

/* Returns the digest of the call, 64 characters without a final zero; NULL if the program lacks it.
 */
SILO_INLINE const char *read_digest(const struct silo_xla_attributes *attributes) {
    for (int64_t i = 0; i < attributes->count; i++) {
        const struct silo_xla_span *name = attributes->names[i];
        if (attributes->types[i] != SILO_XLA_STRING || name->length != 6 ||
            memcmp(name->text, "digest", 6) != 0)
            continue;
        const struct silo_xla_span *value = attributes->values[i];
        return value->length == SILO_XLA_DIGEST ? value->text : NULL;
    }
    return NULL;
}

static void report_metadata(const struct silo_xla_extension *extension, uint32_t traits) {
    struct silo_xla_metadata *metadata =
        ((const struct silo_xla_metadata_extension *)extension)->metadata;
    metadata->version.major = SILO_XLA_MAJOR;
    metadata->version.minor = silo_xla_minor;
    metadata->traits = traits;
}

/* Lets Python make the struct silo_xla_call for a digest that the table lacks, and returns it; NULL
 * with `*error` set. */
static SILO_NOINLINE const struct silo_xla_call *asked_for(const struct silo_xla_frame *frame,
                                                           const char *digest, const char *platform,
                                                           int32_t device,
                                                           struct silo_xla_error **error) {
    char message[1600];
    if (silo_xla_resolver(digest, platform, device, message, sizeof message) != 0) {
        *error = refuse(frame, SILO_XLA_NOT_FOUND, "silo: %s", message);
        return NULL;
    }
    const struct silo_xla_call *call = silo_xla_find(digest, device);
    if (call == NULL)
        *error = refuse(frame, SILO_XLA_INTERNAL, "silo: nobody keeps the call %.*s on %s:%d",
                        SILO_XLA_DIGEST, digest, platform, (int)device);
    return call;
}

/* Reads the device and the stream of a program on a GPU; returns an error or NULL. */
static struct silo_xla_error *read_place(const struct silo_xla_frame *frame, int32_t *device,
                                         void **stream) {
    struct silo_xla_ordinal_get request = {sizeof request, NULL, frame->context, 0};
    struct silo_xla_stream_get queue = {sizeof queue, NULL, frame->context, NULL};
    struct silo_xla_error *error;
    if (frame->api->size < sizeof *frame->api)
        return refuse(frame, SILO_XLA_PRECONDITION,
                      "silo: this jaxlib is too old for kernels on GPUs: it does not say on which "
                      "device a program runs");
    if ((error = frame->api->device_ordinal(&request)) != NULL)
        return error;
    *device = request.ordinal;
    if (frame->stage == SILO_XLA_EXECUTE && (error = frame->api->stream_get(&queue)) != NULL)
        return error;
    *stream = queue.stream;
    return NULL;
}

SILO_INLINE const struct silo_xla_call **hint_of(const struct silo_xla_frame *frame) {
    return &hints[(uintptr_t)frame->attributes.values / 16 % (sizeof hints / sizeof *hints)];
}

#define CACHE_LINE 64
#define MOST_FETCHED 1024 /* the most bytes of a call that are prefetched */

/* Prefetches a call. A hint may be of another program, but reading it is safe, as calls are never
 * freed. */
SILO_INLINE void fetch(const struct silo_xla_call *call, bool on_gpu) {
    const uint32_t bytes = call->bytes < MOST_FETCHED ? call->bytes : MOST_FETCHED;
    for (uint32_t offset = CACHE_LINE; offset < bytes; offset += CACHE_LINE)
        __builtin_prefetch((const char *)call + offset);
    __builtin_prefetch((const char *)call->function);
    __builtin_prefetch((const char *)call->function + CACHE_LINE);
    if (!on_gpu)
        __builtin_prefetch(call->function->handle); /* the machine code */
}

SILO_INLINE struct silo_xla_error *handle(struct silo_xla_frame *frame, const char *platform,
                                          bool on_gpu) {
    const struct silo_xla_extension *extension = frame->extension;
    if (extension != NULL && extension->type == SILO_XLA_EXTENSION) {
        report_metadata(extension, on_gpu ? SILO_XLA_CAPTURES : 0);
        return NULL;
    }
    const struct silo_xla_call *hint = __atomic_load_n(hint_of(frame), __ATOMIC_ACQUIRE);
    if (SILO_LIKELY(hint != NULL))
        fetch(hint, on_gpu);
    /* XLA instantiates a program without a device, so code for a GPU is loaded when the program is
     * initialized. */
    const int32_t early = on_gpu ? SILO_XLA_INITIALIZE : SILO_XLA_INSTANTIATE;
    if (frame->stage != SILO_XLA_EXECUTE && frame->stage != early)
        return NULL;
    const char *digest = read_digest(&frame->attributes);
    if (SILO_UNLIKELY(digest == NULL))
        return refuse(frame, SILO_XLA_INVALID,
                      "silo: the program calls a kernel and names none: it has no attribute "
                      "'digest' of %d characters",
                      SILO_XLA_DIGEST);
    struct silo_xla_error *error = NULL;
    int32_t device = 0;
    void *stream = NULL;
    if (on_gpu && (error = read_place(frame, &device, &stream)) != NULL)
        return error;
    const struct silo_xla_call *call = hint;
    if (SILO_UNLIKELY(hint == NULL || hint->device != device ||
                      !same_digest(hint->digest, digest))) {
        call = silo_xla_find(digest, device);
        if (call == NULL && (call = asked_for(frame, digest, platform, device, &error)) == NULL)
            return error;
        __atomic_store_n(hint_of(frame), call, __ATOMIC_RELEASE);
    }
    return frame->stage == SILO_XLA_EXECUTE ? run(frame, call, stream) : NULL;
}

SILO_HOT struct silo_xla_error *silo_xla_on_cpu(struct silo_xla_frame *frame) {
    return handle(frame, "cpu", false);
}

SILO_HOT struct silo_xla_error *silo_xla_on_cuda(struct silo_xla_frame *frame) {
    return handle(frame, "cuda", true);
}
