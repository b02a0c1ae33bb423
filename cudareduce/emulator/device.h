// The CUDA C++ language, as far as reduction kernels use it, for an ordinary C++17 compiler.
//
// This header is included ahead of every kernel (g++ -include); the kernel itself is the very file
// that nvcc compiles for the GPU. It includes no C++ standard header: thousands of kernels are
// compiled in a test run, <cmath> alone would double the time of each, and <type_traits> with
// <utility> takes a quarter of it.
#pragma once

#define CUDAEMU 1
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000

#include "runtime.h"

#include "device/keywords.h"
#include "device/vectors.h"

#include "device/atomics.h"
#include "device/collectives.h"
#include "device/debug.h"
#include "device/intrinsics.h"
#include "device/math.h"

#include "device/entry.h"
