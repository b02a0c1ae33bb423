// Defines the part of CUDA C++ that reduction kernels use, for a C++17 compiler.
//
// g++ -include adds this header to every kernel file; nvcc compiles the same kernel file for the GPU.
// The header includes no C++ standard header, for speed: a test run compiles thousands of kernels, and
// <cmath> alone would double the time of each.
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
