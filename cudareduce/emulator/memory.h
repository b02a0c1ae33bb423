// Buffers between guard pages.
#pragma once
#include <stddef.h>

#include "block.h"

namespace cudaemu {

// The byte that unwritten memory is filled with: NaN as a float, -1 as an integer.
constexpr unsigned char POISON = 0xff;
bool is_poison(const char *from, const char *to);

// The byte in unwritten memory during a launch, by its thread order: NaN and -1, a large number or a
// small one, since one of them shows in a minimum and another in a maximum.
unsigned char unset_filler(const Launch &launch);

// Describes an address relative to the buffer that it is in or next to, e.g. "4 bytes past the end of
// argument 0 (4000 bytes)". False if it is near none.
bool describe_address(const Launch &launch, const void *address, char *text, size_t capacity);

// The start of the buffer that contains `address`, or null.
const char *start_of_buffer(const void *address);

// Fills the margins around the buffers with the byte of this launch.
void fill_margins(const Launch &launch);

// Diagnoses writes into these margins, and poisons them again.
void check_margins(const Launch &launch);

// Takes an alternate signal stack for this OS thread, without which an overflow of a fiber's stack
// could not be reported.
void use_signal_stack();

}  // namespace cudaemu
