// Buffers between guard pages.
#pragma once
#include <stddef.h>

#include "block.h"

namespace cudaemu {

// What memory is filled with before anything is written to it: NaN as a float, -1 as an integer.
constexpr unsigned char POISON = 0xff;
bool is_poison(const char *from, const char *to);

// What a launch finds where nobody has written: as a float and as an integer NaN and -1, a large
// number or a small one, by its order. A minimum shows one of them and a maximum another.
unsigned char left_behind(const Launch &launch);

// Of the live buffer that holds `address`, or in whose guard pages it lies: what a reader needs to
// know, e.g. "4 bytes past the end of argument 0 (4000 bytes)". False: it is near no buffer.
bool describe_address(const Launch &launch, const void *address, char *text, size_t capacity);

// Where the live buffer that holds `address` begins; null: it lies in none.
const char *start_of_buffer(const void *address);

// Fills the margins around the buffers with what such a launch finds there.
void fill_margins(const Launch &launch);

// Diagnoses writes into these margins, and poisons them again.
void check_margins(const Launch &launch);

// Takes an alternate signal stack for this OS thread, without which an overflow of a fiber's stack
// could not be reported.
void use_signal_stack();

}  // namespace cudaemu
