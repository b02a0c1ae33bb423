#include "fiber.h"

#ifdef CUDAEMU_FAST_SWITCH
asm(R"(
    .text
    .globl cudaemu_switch_context
    .hidden cudaemu_switch_context
    .type cudaemu_switch_context, @function
cudaemu_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    movq 8(%rsi), %rax
    movq 16(%rsi), %rdx
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size cudaemu_switch_context, . - cudaemu_switch_context
)");
#endif
