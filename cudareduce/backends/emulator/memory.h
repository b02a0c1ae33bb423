// Buffers between guard pages.
#pragma once
#include <stddef.h>

#include "block.h"

namespace cudaemu {

// The byte that unwritten memory is filled with: NaN as a float, -1 as an integer.
constexpr unsigned char POISON = 0xff;
bool is_poison(const char *from, const char *to);

// The byte that fills unwritten memory during a launch. Depending on the thread order it makes NaN and
// -1, a large or a small number: a minimum ignores a large number, a maximum a small one.
unsigned char unset_filler(const Launch &launch);

// Describes an address relative to the buffer that it is in or next to, e.g. "4 bytes past the end of
// argument 0 (4000 bytes)". Returns false if no buffer is near.
bool describe_address(const Launch &launch, const void *address, char *text, size_t capacity);

// The start of the buffer that contains `address`, or null.
const char *start_of_buffer(const void *address);

// Fills the margins between buffers and guard pages with the byte of this launch.
void fill_margins(const Launch &launch);

// Diagnoses writes into these margins, and poisons them again.
void check_margins(const Launch &launch);

// Sets an alternate signal stack for this OS thread, so that the handler can report the overflow of a
// fiber's stack.
void use_signal_stack();

}  // namespace cudaemu
