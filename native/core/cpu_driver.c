#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "cpu_driver.h"

#include "cpu_fault.h"
#include "cpu_job.h"
#include "cpu_pool.h"
#include "cpu_thread.h"
#include "cpu_turns.h"
#include "dlpack.h"
#include "loader_lock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#ifdef __linux__
#include <link.h>
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The fault of the last launch that the calling thread made, even if the failing program ran on
 * another thread. */
static _Thread_local struct silo_fault fault;

static silo_cpu_entry *entry_of(const struct silo_function *function) {
    silo_cpu_entry *entry;
    memcpy(&entry, &function->handle, sizeof entry);
    return entry;
}

/* Runs a launch of one program, which has no scratch memory and never waits, on the calling thread.
 * Little more than a function call is needed, because no other thread takes part. `thread` has run
 * a kernel before, so that the crash report can find it. Of `job` only the member `launch` is set,
 * because the crash report reads no other. */
static int launch_one(const struct silo_launch *launch, struct silo_cpu_thread *thread) {
    const struct silo_function *function = launch->function;
    silo_cpu_entry *entry = entry_of(function);
    struct silo_cpu_launch request;
    request.name = function->name;
    request.grid = launch->grid;
    struct silo_cpu_job job;
    job.launch = &request;
    struct silo_cpu_runner runner;
    runner.context.fault.bytes = sizeof runner.context;
    runner.context.fault.claimed = 0;
    runner.context.fault.text[0] = '\0';
    runner.context.program = UINT64_MAX;
    runner.context.wait = NULL;
    runner.context.alone = true;
    runner.context.entered = SILO_CPU_OUTSIDE;
    runner.context.parts = 1;
    runner.context.held = 0;
    runner.context.gate = NULL;
    runner.job = &job;
    runner.begin = 0;
    runner.end = 1;
    struct silo_cpu_runner *outer = atomic_load_explicit(&thread->running, memory_order_relaxed);
    runner.context.turns = silo_cpu_turns_within(outer != NULL ? &outer->context : NULL);
    atomic_store_explicit(&thread->running, &runner, memory_order_relaxed);
    const int error = entry(launch->params, launch->grid, 0, 1, NULL, &runner.context);
    atomic_store_explicit(&thread->running, outer, memory_order_relaxed);
    if (SILO_UNLIKELY(error != 0))
        memcpy(fault.text, runner.context.fault.text, sizeof fault.text);
    return error;
}

/* Programs shorter than this many nanoseconds are not split into parts. */
#define LEAST_CUT 20000

/* Returns the number of parts into which each program should be split: the power of two, at most
 * `most`, with the shortest estimated time of the launch. The estimate assumes that each thread
 * runs parts of equal length one after the other, and that splitting adds work: a sixteenth of the
 * unsplit work for each doubling of the parts, and five sixteenths more for `most` parts. */
static uint32_t best_parts(uint64_t total, uint64_t threads, uint32_t most) {
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t parts = 1, share = 16; parts <= most; parts *= 2, share++) {
        const uint64_t each = (total * parts + threads - 1) / threads;
        const uint64_t sixteenths = share + (parts > 1 && parts == most ? 5 : 0);
        const uint64_t duration = each * sixteenths * (most / parts);
        if (duration < least)
            least = duration, best = parts;
    }
    return best;
}

/* Returns the number of parts into which each program is split. It is more than 1 only if the
 * launch has few programs for its threads, a program takes long or an unknown time (`each_cost`, in
 * 1/16 nanosecond; 0: unknown), and the kernel can split programs. To find that out, the kernel is
 * called with an empty range of programs: it then sets `parts` to the most parts that it can make.
 */
static uint32_t parts_of(const struct silo_cpu_launch *launch, uint64_t each_cost) {
    const struct silo_cpu_share *share = &launch->share;
    uint64_t threads = (uint64_t)silo_cpu_threads();
    if (share->threads != 0 && share->threads < threads)
        threads = share->threads;
    if (launch->scratch_bytes == 0 || threads < 2 || launch->total >= 4 * threads ||
        (each_cost != 0 && each_cost < UINT64_C(16) * LEAST_CUT) || share->chunk == 1 ||
        share->cooperative)
        return 1;
    /* If this thread is already running a kernel, the call would be unsafe: the outer kernel is
     * using the thread's scratch memory, and the inner kernel may write to it even for an empty
     * range. */
    struct silo_cpu_thread *thread = silo_cpu_make_thread();
    if (thread == NULL || atomic_load_explicit(&thread->running, memory_order_relaxed) != NULL)
        return 1;
    void *scratch = silo_cpu_thread_scratch(thread, launch->scratch_bytes);
    if (scratch == NULL)
        return 1;
    struct silo_context query = {.fault = {.bytes = sizeof query}, .parts = SILO_CPU_MOST_PARTS};
    query.program = UINT64_MAX;
    query.alone = true;
    query.entered = SILO_CPU_OUTSIDE;
    launch->entry(launch->params, launch->grid, 0, 0, scratch, &query);
    const bool answered = query.parts != SILO_CPU_MOST_PARTS;
    return answered ? best_parts(launch->total, threads, query.parts) : 1;
}

static SILO_NOINLINE int launch_any(const struct silo_launch *launch, uint64_t total) {
    struct silo_function *function = launch->function;
    /* a local variable, because launches made by programs of this launch overwrite `fault` */
    struct silo_fault local_fault;
    local_fault.text[0] = '\0';
    struct silo_cpu_launch request = {
        .entry = entry_of(function),
        .name = function->name,
        .params = launch->params,
        .grid = launch->grid,
        .total = total,
        .scratch_bytes = function->scratch_bytes,
        .share = {function->cpu_chunk, function->cpu_threads, function->cpu_together,
                  function->cooperative != 0},
        .fault = &local_fault,
        .holds_lock = launch->holds_lock != 0,
    };
    request.parts =
        total != 0 ? parts_of(&request, __atomic_load_n(&function->cost, __ATOMIC_RELAXED)) : 1;
    int code;
    if (request.parts == 1) {
        code = silo_cpu_run(&request, &function->cost);
    } else {
        request.total = total * request.parts;
        code = silo_cpu_run(&request, &function->part_cost);
        const uint64_t part = __atomic_load_n(&function->part_cost, __ATOMIC_RELAXED);
        __atomic_store_n(&function->cost, part * request.parts, __ATOMIC_RELAXED);
    }
    if (code != 0)
        memcpy(fault.text, local_fault.text, sizeof fault.text);
    return code;
}

static SILO_HOT int cpu_launch(const struct silo_launch *launch) {
    const struct silo_function *function = launch->function;
    const uint64_t total = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (total == 1 && function->cpu_chunk != 1 && function->cooperative == 0 &&
        function->scratch_bytes == 0) {
        struct silo_cpu_thread *thread = silo_cpu_known_thread();
        if (SILO_LIKELY(thread != NULL))
            return launch_one(launch, thread);
    }
    return launch_any(launch, total);
}

static const char *cpu_error_text(int code) {
    if (code == SILO_CPU_FORKED)
        return "the process was forked while it ran, by a signal's handler or the kernel itself, "
               "and "
               "what other threads had of it is done in the parent alone";
    if (code == SILO_CPU_NO_MEMORY)
        return "no memory for the scratch of a thread";
    return fault.text[0] != '\0' ? fault.text : "the kernel reported an error";
}

const struct silo_driver silo_cpu_driver = {
    .name = "cpu",
    .device_types = 1U << SILO_DEVICE_CPU | 1U << SILO_DEVICE_CUDA_HOST |
                    1U << SILO_DEVICE_ROCM_HOST | 1U << SILO_DEVICE_CUDA_MANAGED,
    .launch = cpu_launch,
    .error_text = cpu_error_text,
};

static int write_all(int file, const char *data, size_t size) {
    while (size > 0) {
        ssize_t written = write(file, data, size);
        if (written < 0 && errno != EINTR)
            return -1;
        if (written > 0) {
            data += written;
            size -= (size_t)written;
        }
    }
    return 0;
}

/* Calls dlopen and copies its error message. */
static void *open_path(const char *path, char *error, size_t error_size) {
    silo_loader_take();
    const bool usable = silo_loader_usable();
    void *object = usable ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (object == NULL) {
        const char *text = usable ? dlerror() : SILO_LOADER_LOST;
        snprintf(error, error_size, "%s", text ? text : "dlopen failed");
    }
    silo_loader_give();
    return object;
}

#ifdef __linux__
/* Appends the bits of a number to a path: "/" for 0 and "/./" for 1. This makes the path unique,
 * although it still names the same file. */
static char *spell(char *end, uint64_t number, int bits) {
    for (int bit = 0; bit < bits; bit++, number >>= 1) {
        *end++ = '/';
        if (number & 1)
            *end++ = '.', *end++ = '/';
    }
    return end;
}

/* Renames a mapped object in the loader's list of objects. Its first name is a path with the number
 * of a file descriptor, which is closed and later reused for another file: a program that opens
 * objects by their names (for a backtrace) would read that other file. */
static void forget_descriptor(void *object) {
    struct link_map *map = NULL;
    if (dlinfo(object, RTLD_DI_LINKMAP, &map) != 0)
        return;
    char *number = strrchr(map->l_name, '/');
    if (number != NULL && number[1] != '\0')
        number[1] = '-'; /* '-' instead of a digit: the path names no file descriptor */
}

/* Maps an object from a file in memory. The loader takes objects with the same path for the same
 * object, even if the file behind the path has changed, and numbers of closed descriptors are
 * reused. So the path is made unique among loaded objects: it contains the file's inode, which also
 * differs between copies of this library in a process, and a serial number for systems whose inodes
 * are not unique for such files. */
static void *open_memory(const void *data, size_t size, char *error, size_t error_size) {
    static _Atomic uint32_t serial;
    int file = memfd_create("silo-kernel", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    void *object = NULL;
    struct stat status;
    if (fstat(file, &status) == 0 && write_all(file, data, size) == 0) {
        char path[352] = "/proc/self/fd";
        char *end = spell(path + strlen(path), (uint64_t)status.st_ino, 64);
        end = spell(end, atomic_fetch_add(&serial, 1), 32);
        snprintf(end, (size_t)(path + sizeof path - end), "/%d", file);
        object = open_path(path, error, error_size);
        if (object != NULL)
            forget_descriptor(object);
    } else {
        snprintf(error, error_size, "cannot write to memory: %s", strerror(errno));
    }
    close(file);
    return object;
}
#else
static void *open_memory(const void *data, size_t size, char *error, size_t error_size) {
    (void)data, (void)size, (void)error, (void)error_size;
    return NULL;
}
#endif

static void *open_file(const void *data, size_t size, const char *directory, char *error,
                       size_t error_size) {
    char folder[3072], path[3200];
    snprintf(folder, sizeof folder, "%s/silo-XXXXXX", directory);
    if (mkdtemp(folder) == NULL) { /* with mode 0700 */
        snprintf(error, error_size, "cannot make a folder in %s: %s", directory, strerror(errno));
        return NULL;
    }
    snprintf(path, sizeof path, "%s/kernel.so", folder);
    void *object = NULL;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0500);
    if (file >= 0 && write_all(file, data, size) == 0 && close(file) == 0) {
        object = open_path(path, error, error_size);
    } else {
        snprintf(error, error_size, "cannot write %s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
    }
    unlink(path); /* the mapping keeps the file's contents */
    rmdir(folder);
    return object;
}

void *silo_cpu_open(const void *data, size_t size, const char *directory, char *error,
                    size_t error_size) {
    error[0] = '\0';
    if (directory == NULL) {
        void *object = open_memory(data, size, error, error_size);
        if (object != NULL || error[0] != '\0')
            return object;
    }
    return open_file(data, size, directory ? directory : "/tmp", error, error_size);
}

/* Whether an address is in the object itself. dlsym also searches the libraries that an object
 * depends on: it finds `abort` in every object. */
static bool lies_in(void *object, const void *address, Dl_info *where) {
#ifdef __linux__
    struct link_map *link = NULL;
    if (dlinfo(object, RTLD_DI_LINKMAP, &link) != 0 || link == NULL)
        return false;
#ifdef __GLIBC__
    void *map = NULL;
    return dladdr1(address, where, &map, RTLD_DL_LINKMAP) != 0 && map == link;
#else
    return dladdr(address, where) != 0 && (uintptr_t)where->dli_fbase == link->l_addr;
#endif
#else
    (void)object;
    const char *name = dladdr(address, where) != 0 ? strrchr(where->dli_fname, '/') : NULL;
    return name != NULL && strcmp(name, "/kernel.so") == 0; /* the path that open_file returned */
#endif
}

#ifdef __GLIBC__
/* Input and result of a search: the base address of an object, and an address in it; `runs` is set
 * if that memory is executable. */
struct segment_search {
    ElfW(Addr) base, address;
    bool runs;
};

static int look_at_segments(struct dl_phdr_info *object, size_t size, void *data) {
    struct segment_search *search = data;
    (void)size;
    if (object->dlpi_addr != search->base)
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const ElfW(Addr) begin = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0 &&
            search->address >= begin && search->address - begin < segment->p_memsz)
            search->runs = true;
    }
    return 1;
}

/* Whether the object's symbol at this address is a function in executable memory. */
static bool is_function(void *object, const void *address) {
    Dl_info where = {0};
    void *entry = NULL;
    struct link_map *link = NULL;
    if (dlinfo(object, RTLD_DI_LINKMAP, &link) != 0 || link == NULL ||
        dladdr1(address, &where, &entry, RTLD_DL_SYMENT) == 0 || entry == NULL)
        return false;
    const ElfW(Sym) *symbol = entry;
    struct segment_search search = {link->l_addr, (ElfW(Addr))address, false};
    dl_iterate_phdr(look_at_segments, &search);
    /* also right for 32-bit symbols: ELF32_ST_TYPE is the same macro */
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && search.runs;
}
#else
static bool is_function(void *object, const void *address) {
    (void)object, (void)address;
    return true; /* not checked: this C library lacks dladdr1 */
}
#endif

/* Returns the address of a function that the object itself defines; NULL with `error` filled. The
 * caller holds the loader's lock. */
static void *find_symbol(void *object, const char *name, char *error, size_t error_size) {
    Dl_info where = {0};
    if (!silo_loader_usable()) {
        snprintf(error, error_size, SILO_LOADER_LOST);
        return NULL;
    }
    void *address = dlsym(object, name);
    if (address == NULL) {
        snprintf(error, error_size, "the CPU code has no kernel '%s'", name);
    } else if (!lies_in(object, address, &where)) {
        snprintf(error, error_size, "the entry '%s' is a function of %s, not of the code", name,
                 where.dli_fname != NULL ? where.dli_fname : "another library");
        address = NULL;
    } else if (!is_function(object, address)) {
        snprintf(error, error_size, "the entry '%s' is data of the code, not a function", name);
        address = NULL;
    }
    return address;
}

void *silo_cpu_symbol(void *object, const char *name, char *error, size_t error_size) {
    silo_loader_take();
    void *address = find_symbol(object, name, error, error_size);
    silo_loader_give();
    return address;
}

void silo_cpu_close(void *object) {
    silo_loader_take();
    if (silo_loader_usable()) /* otherwise the object stays loaded */
        dlclose(object);
    silo_loader_give();
}
