#include "bundle_codec.h"

#include <stdarg.h>
#include <stdio.h>
#ifdef SILO_ZSTD_LINKED
#include <zstd.h>
#else
#include "loader_lock.h"

#include <dlfcn.h>
#include <pthread.h>
#endif

static int tell(char problem[SILO_CODEC_PROBLEM], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int tell(char problem[SILO_CODEC_PROBLEM], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, SILO_CODEC_PROBLEM, format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- the header of a frame (RFC 8878, 3.1.1.1) ---- */

int silo_codec_stated(const uint8_t *stored, size_t stored_bytes, uint64_t *raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]) {
    static const uint8_t magic[] = {0x28, 0xB5, 0x2F, 0xFD};
    static const uint8_t dictionary_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
    if (stored_bytes < 5 || memcmp(stored, magic, sizeof magic) != 0)
        return tell(problem, "not a zstd frame");
    const uint8_t descriptor = stored[4];
    const bool one_segment = (descriptor & 0x20) != 0;
    const size_t offset = (one_segment ? 5u : 6u) + dictionary_bytes[descriptor & 3];
    size_t bytes = size_bytes[descriptor >> 6];
    if (bytes == 0 && one_segment)
        bytes = 1;
    if (bytes == 0)
        return tell(problem, "the zstd frame does not state its content size");
    if (stored_bytes < offset + bytes)
        return tell(problem, "not a zstd frame: its header is cut");
    uint64_t size = 0;
    memcpy(&size, stored + offset, bytes);
    *raw_bytes = size + (bytes == 2 ? 256 : 0);
    return 0;
}

/* ---- libzstd ---- */

#ifdef SILO_ZSTD_LINKED
#define CALL(name) ZSTD_##name
#else
static struct {
    size_t (*decompress)(void *raw, size_t raw_bytes, const void *stored, size_t stored_bytes);
    size_t (*findFrameCompressedSize)(const void *stored, size_t stored_bytes);
    unsigned (*isError)(size_t code);
    const char *(*getErrorName)(size_t code);
} zstd;
#define CALL(name) zstd.name

/* The functions of libzstd are looked up once; `gate` makes them visible to every thread that has
 * passed pthread_once. */
static pthread_once_t gate = PTHREAD_ONCE_INIT;
static bool opened;
static char why_not[SILO_CODEC_PROBLEM];

static silo_codec *chosen; /* set by silo_codec_use */

/* Opens libzstd by name and stores the addresses of its functions in `zstd`. Sets `opened`, or
 * `why_not` if that fails. The caller holds the loader's lock. */
static void find_functions(void) {
    static const char *const names[] = {"libzstd.so.1", "libzstd.1.dylib"};
    static const struct {
        const char *name;
        void *slot;
    } functions[] = {
        {"ZSTD_decompress", &zstd.decompress},
        {"ZSTD_findFrameCompressedSize", &zstd.findFrameCompressedSize},
        {"ZSTD_isError", &zstd.isError},
        {"ZSTD_getErrorName", &zstd.getErrorName},
    };
    void *library = NULL; /* never closed */
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && i == 0) {
            const char *text = dlerror();
            snprintf(why_not, sizeof why_not, "%s", text != NULL ? text : "dlopen failed");
        }
    }
    if (library == NULL)
        return;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (symbol == NULL) {
            snprintf(why_not, sizeof why_not, "libzstd has no %s", functions[i].name);
            return;
        }
        /* dlsym returns a data pointer; a function pointer has the same representation. */
        memcpy(functions[i].slot, &symbol, sizeof symbol);
    }
    opened = true;
}

static void open_library(void) {
    silo_loader_take();
    if (silo_loader_usable())
        find_functions();
    else
        snprintf(why_not, sizeof why_not, "%s", SILO_LOADER_LOST);
    silo_loader_give();
}
#endif

void silo_codec_use(silo_codec *codec) {
#ifdef SILO_ZSTD_LINKED
    (void)codec;
#else
    __atomic_store_n(&chosen, codec, __ATOMIC_RELEASE);
#endif
}

static int expand(const uint8_t *stored, size_t stored_bytes, uint8_t *raw, size_t raw_bytes,
                  char problem[SILO_CODEC_PROBLEM]) {
    const size_t frame = CALL(findFrameCompressedSize)(stored, stored_bytes);
    if (CALL(isError)(frame))
        return tell(problem, "not a zstd frame: %s", CALL(getErrorName)(frame));
    if (frame != stored_bytes)
        return tell(problem, "the zstd frame is %zu bytes long where %zu are stored", frame,
                    stored_bytes);
    const size_t expanded = CALL(decompress)(raw, raw_bytes, stored, stored_bytes);
    if (CALL(isError)(expanded))
        return tell(problem, "not a zstd frame: %s", CALL(getErrorName)(expanded));
    if (expanded != raw_bytes)
        return tell(problem, "the zstd frame gave %zu bytes where %zu are stated", expanded,
                    raw_bytes);
    return 0;
}

int silo_codec_expand(const uint8_t *stored, size_t stored_bytes, uint8_t *raw, size_t raw_bytes,
                      char problem[SILO_CODEC_PROBLEM]) {
    uint64_t stated;
    /* The size in the frame's header is compared with `raw_bytes` before anything is decompressed.
     */
    if (silo_codec_stated(stored, stored_bytes, &stated, problem) != 0)
        return SILO_ERROR_DAMAGED;
    if (stated != raw_bytes) {
        tell(problem, "the zstd frame holds %llu bytes where %zu are stated",
             (unsigned long long)stated, raw_bytes);
        return SILO_ERROR_DAMAGED;
    }
#ifndef SILO_ZSTD_LINKED
    pthread_once(&gate, open_library);
    silo_codec *codec = __atomic_load_n(&chosen, __ATOMIC_ACQUIRE);
    if (!opened && codec != NULL)
        return codec(stored, stored_bytes, raw, raw_bytes, problem) == 0 ? 0 : SILO_ERROR_DAMAGED;
    if (!opened) {
        tell(problem,
             "it is stored with zstd, and libzstd is not here (%.80s): install it (libzstd1, "
             "libzstd), or store the bundle raw with silo export",
             why_not);
        return SILO_ERROR_CODEC;
    }
#endif
    return expand(stored, stored_bytes, raw, raw_bytes, problem) == 0 ? 0 : SILO_ERROR_DAMAGED;
}
