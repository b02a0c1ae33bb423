// What nvcc has included ahead of a text of the C++ library.
#pragma once
#include <type_traits>
#include <utility>
