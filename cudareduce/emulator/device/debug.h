// printf() and assert(), which a kernel has without asking for them.
#pragma once

// By this name in the runtime library, since the C library's own would write to standard output.
extern "C" int printf(const char *format, ...) __asm__("cudaemu_printf");

// A macro of this name from <assert.h> would end the process.
#include <assert.h>
