// A text whose threads wait for each other uses SILO_THREADS_SWITCH once.
//
// It defines silo_threads_switch(), which changes from one stack to another: it pushes the
// callee-saved registers on the old stack, stores the stack pointer in *save, and pops the
// registers from the new stack, `to`.
#pragma once

#include "group.h"

namespace silo_threads {

extern "C" void silo_threads_switch(void **save, void *to) __attribute__((visibility("hidden")));

// Defines the variable of own_group() in assembly if the compiler emulates __thread variables: the
// emulation calls own_group(), so a __thread variable would lead to endless recursion.
#define SILO_THREADS_SLOT_VARIABLE                                                                 \
    ".section .tbss, \"awT\", %nobits\n"                                                           \
    ".p2align 3\n"                                                                                 \
    ".hidden silo_threads_group\n"                                                                 \
    ".globl silo_threads_group\n"                                                                  \
    ".type silo_threads_group, %object\n"                                                          \
    "silo_threads_group:\n"                                                                        \
    "  .zero 8\n"                                                                                  \
    ".size silo_threads_group, 8\n"                                                                \
    ".text\n"

#if defined __x86_64__

#define SILO_THREADS_SWITCH_CODE                                                                   \
    asm(".text\n"                                                                                  \
        ".p2align 4\n"                                                                             \
        ".weak silo_threads_switch\n"                                                              \
        ".hidden silo_threads_switch\n"                                                            \
        ".type silo_threads_switch, @function\n"                                                   \
        "silo_threads_switch:\n"                                                                   \
        "  pushq %rbp\n"                                                                           \
        "  pushq %rbx\n"                                                                           \
        "  pushq %r12\n"                                                                           \
        "  pushq %r13\n"                                                                           \
        "  pushq %r14\n"                                                                           \
        "  pushq %r15\n"                                                                           \
        "  movq %rsp, (%rdi)\n"                                                                    \
        "  movq %rsi, %rsp\n"                                                                      \
        "  popq %r15\n"                                                                            \
        "  popq %r14\n"                                                                            \
        "  popq %r13\n"                                                                            \
        "  popq %r12\n"                                                                            \
        "  popq %rbx\n"                                                                            \
        "  popq %rbp\n"                                                                            \
        "  popq %rax\n"                                                                            \
        "  jmpq *%rax\n"                                                                           \
        ".size silo_threads_switch, .-silo_threads_switch\n");

#define SILO_THREADS_SLOT_CODE                                                                     \
    asm(".text\n"                                                                                  \
        ".p2align 4\n"                                                                             \
        ".weak silo_threads_slot\n"                                                                \
        ".hidden silo_threads_slot\n"                                                              \
        ".type silo_threads_slot, @function\n"                                                     \
        "silo_threads_slot:\n"                                                                     \
        "  pushq %rax\n"                                                                           \
        "  leaq silo_threads_group@TLSLD(%rip), %rdi\n"                                            \
        "  callq __tls_get_addr@PLT\n"                                                             \
        "  leaq silo_threads_group@DTPOFF(%rax), %rax\n"                                           \
        "  popq %rcx\n"                                                                            \
        "  retq\n"                                                                                 \
        ".size silo_threads_slot, .-silo_threads_slot\n" SILO_THREADS_SLOT_VARIABLE);

// Prepares a new stack, so that switching to it calls `begin` with the stack pointer aligned as the
// ABI requires at a function's first instruction.
inline void *new_stack(char *top, void (*begin)()) {
    void **at = reinterpret_cast<void **>(reinterpret_cast<unsigned long>(top) & ~15ul);
    *--at = nullptr; // takes the place of a return address
    *--at = reinterpret_cast<void *>(begin);
    for (int i = 0; i < 6; i++)
        *--at = nullptr;
    return at;
}

#elif defined __aarch64__

#define SILO_THREADS_SWITCH_CODE                                                                   \
    asm(".text\n"                                                                                  \
        ".p2align 4\n"                                                                             \
        ".weak silo_threads_switch\n"                                                              \
        ".hidden silo_threads_switch\n"                                                            \
        ".type silo_threads_switch, %function\n"                                                   \
        "silo_threads_switch:\n"                                                                   \
        "  sub sp, sp, #160\n"                                                                     \
        "  stp x19, x20, [sp, #0]\n"                                                               \
        "  stp x21, x22, [sp, #16]\n"                                                              \
        "  stp x23, x24, [sp, #32]\n"                                                              \
        "  stp x25, x26, [sp, #48]\n"                                                              \
        "  stp x27, x28, [sp, #64]\n"                                                              \
        "  stp x29, x30, [sp, #80]\n"                                                              \
        "  stp d8, d9, [sp, #96]\n"                                                                \
        "  stp d10, d11, [sp, #112]\n"                                                             \
        "  stp d12, d13, [sp, #128]\n"                                                             \
        "  stp d14, d15, [sp, #144]\n"                                                             \
        "  mov x9, sp\n"                                                                           \
        "  str x9, [x0]\n"                                                                         \
        "  mov sp, x1\n"                                                                           \
        "  ldp x19, x20, [sp, #0]\n"                                                               \
        "  ldp x21, x22, [sp, #16]\n"                                                              \
        "  ldp x23, x24, [sp, #32]\n"                                                              \
        "  ldp x25, x26, [sp, #48]\n"                                                              \
        "  ldp x27, x28, [sp, #64]\n"                                                              \
        "  ldp x29, x30, [sp, #80]\n"                                                              \
        "  ldp d8, d9, [sp, #96]\n"                                                                \
        "  ldp d10, d11, [sp, #112]\n"                                                             \
        "  ldp d12, d13, [sp, #128]\n"                                                             \
        "  ldp d14, d15, [sp, #144]\n"                                                             \
        "  add sp, sp, #160\n"                                                                     \
        "  ret\n"                                                                                  \
        ".size silo_threads_switch, .-silo_threads_switch\n");

#define SILO_THREADS_SLOT_CODE                                                                     \
    asm(".text\n"                                                                                  \
        ".p2align 4\n"                                                                             \
        ".weak silo_threads_slot\n"                                                                \
        ".hidden silo_threads_slot\n"                                                              \
        ".type silo_threads_slot, %function\n"                                                     \
        "silo_threads_slot:\n"                                                                     \
        "  stp x29, x30, [sp, #-16]!\n"                                                            \
        "  mov x29, sp\n"                                                                          \
        "  adrp x0, :tlsdesc:silo_threads_group\n"                                                 \
        "  ldr x1, [x0, :tlsdesc_lo12:silo_threads_group]\n"                                       \
        "  add x0, x0, :tlsdesc_lo12:silo_threads_group\n"                                         \
        "  .tlsdesccall silo_threads_group\n"                                                      \
        "  blr x1\n"                                                                               \
        "  mrs x8, TPIDR_EL0\n"                                                                    \
        "  add x0, x8, x0\n"                                                                       \
        "  ldp x29, x30, [sp], #16\n"                                                              \
        "  ret\n"                                                                                  \
        ".size silo_threads_slot, .-silo_threads_slot\n" SILO_THREADS_SLOT_VARIABLE);

inline void *new_stack(char *top, void (*begin)()) {
    char *at = reinterpret_cast<char *>(reinterpret_cast<unsigned long>(top) & ~15ul) - 160;
    __builtin_memset(at, 0, 160);
    *reinterpret_cast<void **>(at + 88) = reinterpret_cast<void *>(begin); // x30, the link
    return at;
}

#else
#error "threads of a group need x86-64 or aarch64"
#endif

} // namespace silo_threads

#ifdef SILO_THREADS_SLOT
#define SILO_THREADS_SWITCH SILO_THREADS_SWITCH_CODE SILO_THREADS_SLOT_CODE
#else
#define SILO_THREADS_SWITCH                                                                        \
    SILO_THREADS_SWITCH_CODE                                                                       \
    namespace silo_threads {                                                                       \
    __thread Group *group;                                                                         \
    }
#endif
