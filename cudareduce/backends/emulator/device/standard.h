// Headers of the C++ library that nvcc includes implicitly.
#pragma once
#include <type_traits>
#include <utility>
