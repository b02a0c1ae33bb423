// cuBLAS: its calls are logged and compute nothing.
#pragma once
#include "cuda_bf16.h"

typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1 };
typedef cublasStatus_t cublasStatus;
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
#define RECORDER_IGNORED(name)     \
  template <class... T>            \
  cublasStatus_t name(T...) {      \
    return CUBLAS_STATUS_SUCCESS;  \
  }
RECORDER_IGNORED(cublasInit)
RECORDER_IGNORED(cublasShutdown)
RECORDER_IGNORED(cublasCreate)
RECORDER_IGNORED(cublasDestroy)
RECORDER_IGNORED(cublasSetStream)
RECORDER_IGNORED(cublasSetPointerMode)
RECORDER_IGNORED(cublasSetMathMode)
#undef RECORDER_IGNORED
#define RECORDER_CALL(name)                               \
  template <class... T>                                   \
  cublasStatus_t name(T...) {                             \
    return recorder::library_call(#name), CUBLAS_STATUS_SUCCESS; \
  }
#define RECORDER_CALLS(name)                                              \
  RECORDER_CALL(cublasS##name) RECORDER_CALL(cublasD##name) RECORDER_CALL(cublasC##name) \
      RECORDER_CALL(cublasZ##name)
RECORDER_CALLS(asum)
RECORDER_CALLS(dot)
RECORDER_CALLS(nrm2)
RECORDER_CALLS(axpy)
RECORDER_CALLS(scal)
RECORDER_CALLS(copy)
RECORDER_CALLS(gemv)
RECORDER_CALLS(gemm)
RECORDER_CALL(cublasIsamax)
RECORDER_CALL(cublasIdamax)
RECORDER_CALL(cublasIsamin)
RECORDER_CALL(cublasIdamin)
RECORDER_CALL(cublasGemmEx)
RECORDER_CALL(cublasSetVector)
RECORDER_CALL(cublasGetVector)
RECORDER_CALL(cublasSetMatrix)
RECORDER_CALL(cublasGetMatrix)
#undef RECORDER_CALLS
#undef RECORDER_CALL
