/* Calls within calls: a grid function, a hook or an argument may call a kernel, which takes a piece
 * of the stack as large as its arguments need. Python counts its own frames alone. */
#ifndef SILO_STACK_H
#define SILO_STACK_H

/* Before code is run that may call a kernel, within the call of one: 0, or -1 with a RecursionError
 * set if little of the thread's stack is left. */
int silo_stack_check(void);

#endif
