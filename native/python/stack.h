/* Checks the stack for calls inside calls: a grid function, a hook or an argument may call a
 * kernel, and each call takes a piece of the stack that grows with its arguments. Python only
 * counts its own frames. */
#ifndef SILO_STACK_H
#define SILO_STACK_H

/* Called during a call before code runs that may call a kernel. Returns 0, or -1 with a
 * RecursionError set if little of the thread's stack remains. */
int silo_stack_check(void);

#endif
