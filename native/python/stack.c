#include "stack.h"

#include "python.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes of stack that must remain: enough for a call with the most arguments, the Python code that
 * it runs, and the kernel. On a small stack, a quarter of the stack's size is enough. */
#define ROOM ((uintptr_t)256 << 10)

/* The thread's stack: its lowest address, and the address below which little of the stack remains.
 */
static _Thread_local struct {
    bool is_known;
    uintptr_t low, end;
} stack;

#ifdef __linux__
/* The start of the main thread's stack, in glibc. */
extern void *__libc_stack_end __attribute__((weak));

/* Finds the stack of the process's first thread, which may grow up to a limit. The system's own
 * function is not used: it reads every line of /proc/self/maps. */
static bool find_first(uintptr_t address, uintptr_t *low, uintptr_t *size) {
    struct rlimit limit;
    if (getpid() != gettid())
        return false;
    const uintptr_t top = &__libc_stack_end != NULL ? (uintptr_t)__libc_stack_end : address;
    *low = 0;
    *size = 0;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < top) {
        *size = (uintptr_t)limit.rlim_cur;
        *low = top - *size;
    }
    return true;
}

static void find(uintptr_t frame_address, uintptr_t *low, uintptr_t *size) {
    pthread_attr_t attributes;
    void *address = NULL;
    size_t bytes = 0;
    *low = *size = 0;
    if (find_first(frame_address, low, size) ||
        pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &address, &bytes) == 0) {
        *low = (uintptr_t)address;
        *size = bytes;
    }
    pthread_attr_destroy(&attributes);
}
#elif defined(__APPLE__)
static void find(uintptr_t here, uintptr_t *low, uintptr_t *size) {
    (void)here;
    *size = pthread_get_stacksize_np(pthread_self());
    *low = (uintptr_t)pthread_get_stackaddr_np(pthread_self()) - *size;
}
#else
static void find(uintptr_t here, uintptr_t *low, uintptr_t *size) {
    (void)here;
    *low = *size = 0;
}
#endif

int silo_stack_check(void) {
    const uintptr_t address = (uintptr_t)__builtin_frame_address(0);
    if (SILO_UNLIKELY(!stack.is_known)) {
        uintptr_t size;
        find(address, &stack.low, &size);
        stack.end = stack.low + (size / 4 < ROOM ? size / 4 : ROOM);
        stack.is_known = true;
    }
    /* An address below the thread's own stack is on a coroutine's stack, whose limits are unknown.
     */
    if (SILO_LIKELY(address >= stack.end || address < stack.low))
        return 0;
    PyErr_SetString(PyExc_RecursionError,
                    "calls of kernels within calls (by a grid function, a hook or an argument) "
                    "have used up the stack of this thread");
    return -1;
}
