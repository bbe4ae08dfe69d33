/* The kernels of @ORIGIN@ as functions of C, and the bundle they come from. Made by `silo export`.
 *
 * The bundle is put in place by the assembler: @NAME@.silo, found from the compiler's working
 * directory, or where SILO_BUNDLE_FILE says. With -DSILO_NO_INCBIN it is the text that
 * embed.c makes of it: cc -o embed embed.c && ./embed @NAME@.silo > @NAME@_bundle.inc */
#include "@NAME@.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { KERNELS = @KERNELS@ };
#define BUNDLE_BYTES @BYTES@

#if !defined(__ELF__) && !defined(SILO_NO_INCBIN)
#define SILO_NO_INCBIN
#endif

#ifdef SILO_NO_INCBIN
static const _Alignas(64) unsigned char bundle_data[] = {
#include "@NAME@_bundle.inc"
};
#else
#ifndef SILO_BUNDLE_FILE
#define SILO_BUNDLE_FILE "@NAME@.silo"
#endif
extern const unsigned char bundle_data[] __asm__("@NAME@_bundle_data")
    __attribute__((visibility("hidden")));
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl @NAME@_bundle_data\n"
        ".hidden @NAME@_bundle_data\n"
        ".type @NAME@_bundle_data, %object\n"
        ".size @NAME@_bundle_data, @BYTES@\n"
        "@NAME@_bundle_data:\n"
        ".incbin \"" SILO_BUNDLE_FILE "\"\n"
        ".popsection\n");
#endif

@COMPILED@
static const char *const kernel_names[KERNELS] = {
@KERNEL_NAMES@};

static silo_bundle *_Atomic opened;
static silo_kernel *_Atomic kernels[KERNELS];

static int open_bundle(const silo_options *options, silo_bundle **bundle, silo_error *error) {
    silo_options linked;
    memset(&linked, 0, sizeof linked);
    if (options != NULL)
        memcpy(&linked, options, options->size < sizeof linked ? options->size : sizeof linked);
    linked.size = sizeof linked;
    linked.flags |= SILO_LINKED;
@USE_COMPILED@
    return silo_open_memory(bundle_data, BUNDLE_BYTES, "@NAME@", &linked, bundle, error);
}

/* Threads may open it at one time; the first to be done wins. */
silo_bundle *@NAME@_bundle(silo_error *error) {
    silo_bundle *bundle = atomic_load_explicit(&opened, memory_order_acquire), *made;
    if (bundle != NULL)
        return bundle;
    if (open_bundle(NULL, &made, error) != 0)
        return NULL;
    if (atomic_compare_exchange_strong(&opened, &bundle, made))
        return made;
    silo_close(made);
    return bundle;
}

int @NAME@_open(const silo_options *options, silo_error *error) {
    silo_bundle *bundle = NULL, *made;
    const int code = open_bundle(options, &made, error);
    if (code != 0 || atomic_compare_exchange_strong(&opened, &bundle, made))
        return code;
    silo_close(made);
    if (error != NULL) {
        memset(error, 0, sizeof *error);
        error->code = SILO_ERROR_USAGE;
        error->offset = UINT64_MAX;
        snprintf(error->text, sizeof error->text,
                 "@NAME@ is open: call @NAME@_open before the first kernel, or @NAME@_close first");
    }
    return SILO_ERROR_USAGE;
}

void @NAME@_close(void) {
    for (int at = 0; at < KERNELS; at++)
        atomic_store(&kernels[at], NULL);
    silo_close(atomic_exchange(&opened, NULL));
}

silo_kernel *@NAME@_kernel(const char *name, silo_error *error) {
    silo_bundle *bundle = @NAME@_bundle(error);
    silo_kernel *kernel;
    return bundle != NULL && silo_find(bundle, name, &kernel, error) == 0 ? kernel : NULL;
}

typedef int action(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                   size_t count, const silo_call *how, silo_error *error);

static int call(int at, action *act, const silo_queue *queue, const silo_argument *arguments,
                size_t count, const int64_t *grid, silo_error *error) {
    silo_kernel *kernel = atomic_load_explicit(&kernels[at], memory_order_acquire);
    if (kernel == NULL) {
        silo_error own;
        memset(&own, 0, sizeof own);
        kernel = @NAME@_kernel(kernel_names[at], &own);
        if (kernel == NULL) {
            if (error != NULL)
                *error = own;
            else
                silo_error_clear(&own);
            return own.code;
        }
        atomic_store_explicit(&kernels[at], kernel, memory_order_release);
    }
    silo_call how;
    memset(&how, 0, sizeof how);
    how.grid = grid;
    return act(kernel, queue, arguments, count, grid != NULL ? &how : NULL, error);
}
@DESCRIBED@
