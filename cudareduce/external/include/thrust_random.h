// Random numbers of Thrust are those of the standard library.
#pragma once
#include <random>

#include "thrust.h"

namespace thrust {
using default_random_engine = std::minstd_rand;
template <class T = float>
using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = int>
using uniform_int_distribution = std::uniform_int_distribution<T>;
template <class T = float>
using normal_distribution = std::normal_distribution<T>;
namespace random = thrust;
}  // namespace thrust
