// printf() and assert(), which CUDA provides without an include.
#pragma once

// Renamed, since printf of the C library would write to standard output.
extern "C" int printf(const char *format, ...) __asm__("cudaemu_printf");

// Replaces the macro of <assert.h>, which would end the process.
#include <assert.h>
