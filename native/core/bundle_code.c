#include "bundle_code.h"

#include "cuda_driver.h"

#include <stdio.h>
#include <stdlib.h>

/* Copies the error `failure`, made by a function that does not know the kernel, to `error`, with
 * the kernel's name before the text. */
static int pass_on(silo_error *error, silo_error *failure, const char *kernel) {
    if (strncmp(failure->text, kernel, strlen(kernel)) == 0)
        silo_fail_driver(error, failure->code, failure->driver_code, "%s", failure->text);
    else
        silo_fail_driver(error, failure->code, failure->driver_code, "%s: %s", kernel,
                         failure->text);
    if (error != NULL) {
        error->offset = failure->offset;
        memcpy(error->field, failure->field, sizeof error->field);
        error->details = failure->details;
        failure->details = NULL;
    }
    silo_error_clear(failure);
    return -1;
}

/* ---- trust in native code ---- */

static int refuse(const struct silo_bundle *bundle, const struct silo_variant *variant,
                  const char *digest, const char *reason, silo_error *error) {
    return silo_fail(error, SILO_ERROR_UNTRUSTED,
                     "%s: its CPU code in %s is native code, and %s. Give silo_options.vouch a "
                     "function that knows the digest %s (the ledger of `silo trust` keeps such), "
                     "or link the bundle into the program and open it with SILO_LINKED",
                     variant->kernel.data, bundle->name, reason, digest);
}

/* Checks that the variant's native code is trusted. Called for every variant, even if its object is
 * loaded already, because trust in an object covers the way in which one variant calls it, and
 * another variant may call it with other parameters. */
static int vouch(struct silo_bundle *bundle, uint32_t kernel, uint32_t number,
                 const struct silo_variant *variant, const uint8_t *data, silo_error *error) {
    const struct silo_blob *blob = silo_reader_blob(bundle->reader, variant->blob);
    char digest[65];
    if (bundle->options.vouch == NULL && (bundle->options.flags & SILO_LINKED))
        return 0;
    if (silo_reader_host_digest(bundle->reader, kernel, number, digest, error) != 0)
        return -1;
    if (bundle->options.vouch == NULL)
        return refuse(bundle, variant, digest, "nobody was asked to vouch for it", error);
    const silo_host_code code = {
        .bundle = bundle->name,
        .kernel = variant->kernel.data,
        .identity = silo_reader_identity(bundle->reader),
        .sha256 = blob->sha256,
        .digest = digest,
        .data = data,
        .bytes = blob->raw_bytes,
    };
    if (bundle->options.vouch(bundle->options.context, &code) == 1)
        return 0;
    return refuse(bundle, variant, digest, "the program does not vouch for it", error);
}

/* ---- the parameters of the code ---- */

static const struct {
    const char *type;
    size_t bytes;
} abi_bytes[] = {
    {"ptr", 8},  {"i1", 1},   {"i8", 1},      {"i16", 2},     {"i32", 4},         {"i64", 8},
    {"u8", 1},   {"u16", 2},  {"u32", 4},     {"u64", 8},     {"fp16", 2},        {"bf16", 2},
    {"fp32", 4}, {"fp64", 8}, {"scratch", 8}, {"profile", 8}, {"tensormap", 128}, {"empty", 1},
};

static size_t bytes_of(const struct silo_layout_slot *slot) {
    const char *type = slot->type.data;
    if (slot->form != NULL)
        return slot->form->bytes;
    for (size_t i = 0; i < sizeof abi_bytes / sizeof *abi_bytes; i++)
        if (strcmp(abi_bytes[i].type, type) == 0)
            return abi_bytes[i].bytes;
    return 0;
}

/* Reads offset and size of each parameter from the code itself, for drivers that cannot report
 * them: HIP, and CUDA before 12.4. Returns the number of parameters, or -1 with `error` filled. */
static int64_t stated_places(struct silo_bundle *bundle, const struct silo_variant *variant,
                             struct silo_parameter_place *places, size_t room, silo_error *error) {
    void *owned = NULL;
    const struct silo_blob *blob = silo_reader_blob(bundle->reader, variant->blob);
    const uint8_t *data = silo_reader_bytes(bundle->reader, variant->blob, &owned, error);
    if (data == NULL)
        return -1;
    const int64_t count = silo_device_code_places(data, blob->raw_bytes,
                                                  variant->launch->entry.data, places, room, error);
    free(owned);
    return count;
}

/* Compares the parameters in the bundle's layout with those that the code declares: their number
 * and sizes. A launch passes parameters by the layout, but the driver copies as many bytes as the
 * code declares. After a mismatch the driver would therefore read other memory of this process. */
static int check_places(struct silo_bundle *bundle, const struct silo_variant *variant,
                        const struct silo_binary *binary, const struct silo_function *function,
                        const struct silo_used_device *where, silo_error *error) {
    enum { ROOM = 16 * SILO_MAX_PARAMETERS };
    const struct silo_launch_info *launch = variant->launch;
    struct silo_parameter_place *places = malloc(ROOM * sizeof *places);
    if (places == NULL)
        return silo_fail_memory(error);
    int64_t count = silo_binary_places(binary, function, places, ROOM);
    if (count < 0)
        count = stated_places(bundle, variant, places, ROOM, error);
    int result = count < 0 ? -1 : 0;
    for (uint32_t i = 0; result == 0 && i < launch->slot_count; i++) {
        const size_t expected_bytes = bytes_of(&launch->layout[i]);
        if ((int64_t)i < count && i < ROOM && places[i].size == expected_bytes)
            continue;
        result = silo_fail(error, SILO_ERROR_LOAD,
                           "%s on %s: the code takes other parameters than %s says: parameter %u "
                           "(%s) has %zu bytes there and %zu in the code, which takes %lld. The "
                           "driver would read other memory of this process than the arguments, so "
                           "it is not loaded; build the bundle again",
                           variant->kernel.data, where->target, bundle->name, i,
                           launch->layout[i].name.data, expected_bytes,
                           (int64_t)i < count && i < ROOM ? places[i].size : (size_t)0,
                           (long long)count);
    }
    if (result == 0 && count > (int64_t)launch->slot_count)
        result = silo_fail(error, SILO_ERROR_LOAD,
                           "%s on %s: the code takes %lld parameters, and %s says %u. The driver "
                           "would read other memory of this process than the arguments, so it is "
                           "not loaded; build the bundle again",
                           variant->kernel.data, where->target, (long long)count, bundle->name,
                           launch->slot_count);
    free(places);
    return result;
}

/* ---- loading ---- */

/* Fills `function` with the launch parameters of the bundle's launch info. */
static int describe(const struct silo_variant *variant, struct silo_function *function,
                    silo_error *error) {
    const struct silo_launch_info *launch = variant->launch;
    const int64_t most = UINT32_MAX;
    memset(function, 0, sizeof *function);
    if (launch->shared_bytes > most || launch->scratch_align > most ||
        launch->profile_align > most || launch->cluster[0] > most || launch->cluster[1] > most ||
        launch->cluster[2] > most)
        return silo_fail(
            error, SILO_ERROR_LIMIT,
            "%s: its launch asks for %lld bytes of shared memory in clusters of %lld x "
            "%lld x %lld blocks, which no device has",
            variant->kernel.data, (long long)launch->shared_bytes, (long long)launch->cluster[0],
            (long long)launch->cluster[1], (long long)launch->cluster[2]);
    for (int axis = 0; axis < 3; axis++)
        function->cluster[axis] = (uint32_t)launch->cluster[axis];
    function->counts_blocks = launch->counts_blocks;
    function->shared_bytes = (uint32_t)launch->shared_bytes;
    function->scratch_bytes = (uint64_t)launch->scratch_bytes;
    function->scratch_align = (uint32_t)launch->scratch_align;
    function->profile_bytes = (uint64_t)launch->profile_bytes;
    function->profile_align = (uint32_t)launch->profile_align;
    function->cooperative = launch->cooperative;
    function->pdl = launch->pdl;
    function->cpu_together = 1024; /* the default of SILO_PROGRAMS_AT_ONCE in Python */
    for (uint32_t i = 0; i < launch->option_count; i++) {
        const struct silo_launch_option *option = &launch->options[i];
        if (strcmp(option->name.data, "cpu_chunk") == 0)
            function->cpu_chunk = (uint32_t)option->value;
        else if (strcmp(option->name.data, "cpu_threads") == 0)
            function->cpu_threads = (uint32_t)option->value;
        else if (strcmp(option->name.data, "cpu_work") == 0 && option->value > 0)
            function->cost = 16 * (uint64_t)(uint32_t)option->value;
    }
    return silo_function_set_block(function, variant->kernel.data, launch->block, error);
}

static bool loads(const struct silo_used_device *where, const char *kind) {
    if (where->gpu == NULL)
        return strcmp(kind, "so") == 0;
    if (where->gpu == &silo_cuda)
        return strcmp(kind, "cubin") == 0 || strcmp(kind, "ptx") == 0;
    return strcmp(kind, "hsaco") == 0;
}

/* Returns the program's own function that replaces `entry` of a shared object, or NULL. */
static const silo_compiled *compiled_in(const struct silo_bundle *bundle,
                                        const struct silo_blob *blob, const char *entry) {
    for (size_t i = 0; i < bundle->options.compiled_count; i++) {
        const silo_compiled *compiled = &bundle->options.compiled[i];
        if (strcmp(compiled->sha256, blob->sha256) == 0 && strcmp(compiled->entry, entry) == 0)
            return compiled;
    }
    return NULL;
}

static struct silo_binary *binary_of_function(const silo_compiled *compiled, silo_error *error) {
    const void *address;
    memcpy(&address, &compiled->function, sizeof address);
    return silo_binary_at(address, error);
}

/* Verifies a blob, checks that native code is trusted, and loads the blob unless it is `loaded`
 * already. Returns NULL if it is, or with `error` filled. */
static struct silo_binary *load_blob(struct silo_bundle *bundle, uint32_t kernel, uint32_t number,
                                     const struct silo_variant *variant,
                                     const struct silo_used_device *where, bool loaded,
                                     silo_error *error) {
    void *owned = NULL;
    const struct silo_blob *blob = silo_reader_blob(bundle->reader, variant->blob);
    const uint8_t *data = silo_reader_bytes(bundle->reader, variant->blob, &owned, error);
    if (data == NULL)
        return NULL;
    struct silo_binary *binary = NULL;
    struct silo_gpu_device *device = NULL;
    if (where->gpu == NULL) {
        if (vouch(bundle, kernel, number, variant, data, error) == 0 && !loaded)
            binary = silo_binary_load(NULL, data, blob->raw_bytes, NULL, error);
    } else {
        device = silo_gpu_device(where->gpu, where->index, error);
        if (device != NULL)
            binary = silo_binary_load(device, data, blob->raw_bytes, NULL, error);
    }
    free(owned);
    return binary;
}

static struct silo_loaded_code *find_code(const struct silo_bundle *bundle,
                                          const struct silo_used_device *where, uint32_t blob,
                                          const char *entry) {
    for (struct silo_loaded_code *loaded = bundle->codes; loaded != NULL; loaded = loaded->next)
        if (loaded->where == where && loaded->blob == blob &&
            (loaded->entry == NULL || strcmp(loaded->entry, entry) == 0))
            return loaded;
    return NULL;
}

static struct silo_loaded_code *load(struct silo_bundle *bundle, uint32_t kernel, uint32_t number,
                                     const struct silo_variant *variant,
                                     const struct silo_used_device *where, silo_error *error) {
    const struct silo_blob *blob = silo_reader_blob(bundle->reader, variant->blob);
    const char *entry = variant->launch->entry.data;
    if (!loads(where, blob->kind.data)) {
        silo_fail(error, SILO_ERROR_UNSUPPORTED,
                  "its code is of kind %s, which no driver launches on %s: a library does in "
                  "Python, and libsilo does not",
                  blob->kind.data, where->target);
        return NULL;
    }
    struct silo_loaded_code *existing = find_code(bundle, where, variant->blob, entry);
    const silo_compiled *compiled = where->gpu == NULL ? compiled_in(bundle, blob, entry) : NULL;
    if (existing != NULL && (compiled != NULL || where->gpu != NULL))
        return existing;
    silo_error failure = {.code = SILO_OK};
    struct silo_binary *binary = compiled != NULL ? binary_of_function(compiled, &failure)
                                                  : load_blob(bundle, kernel, number, variant,
                                                              where, existing != NULL, &failure);
    if (failure.code != SILO_OK) {
        *error = failure;
        return NULL;
    }
    if (existing != NULL)
        return existing;
    struct silo_loaded_code *loaded = calloc(1, sizeof *loaded); /* owned by the list below */
    if (loaded == NULL) {
        silo_binary_release(binary);
        silo_fail_memory(error);
        return NULL;
    }
    *loaded = (struct silo_loaded_code){bundle->codes, where, variant->blob,
                                        compiled != NULL ? compiled->entry : NULL, binary};
    __atomic_store_n(&bundle->codes, loaded, __ATOMIC_RELEASE);
    return loaded;
}

const struct silo_loaded_code *silo_code_load(struct silo_bundle *bundle, uint32_t kernel,
                                              uint32_t number, const struct silo_variant *variant,
                                              const struct silo_used_device *where,
                                              struct silo_function *function, silo_error *error) {
    silo_error failure = {.code = SILO_OK};
    const struct silo_loaded_code *code = load(bundle, kernel, number, variant, where, &failure);
    if (code == NULL || describe(variant, function, &failure) != 0 ||
        silo_binary_function(code->binary, variant->kernel.data, variant->launch->entry.data,
                             function, &failure) != 0 ||
        (where->gpu != NULL &&
         check_places(bundle, variant, code->binary, function, where, &failure) != 0)) {
        pass_on(error, &failure, variant->kernel.data);
        return NULL;
    }
    return code;
}

void silo_code_free(struct silo_bundle *bundle) {
    while (bundle->codes != NULL) {
        struct silo_loaded_code *next = bundle->codes->next;
        silo_binary_release(bundle->codes->binary);
        free(bundle->codes);
        bundle->codes = next;
    }
}
