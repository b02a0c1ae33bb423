// CUB on the host's memory: sums, and lets the clock that the stream's handle points to go on by
// COST_US. The header of the tree that stands in for CUB may define COST_US and FACTOR.
#include <cstddef>
#include <cub/device/device_reduce.cuh>
#include <cuda/std/__cccl/version.h>

#ifndef COST_US
#define COST_US 100.0
#endif
#ifndef FACTOR
#define FACTOR 1.0
#endif

extern "C" int cccl_version() { return CCCL_VERSION; }

extern "C" int run_to_run(void *tmp, size_t *bytes, const float *in, float *out, long long n,
                          long long, double *clock)
{
    if (!tmp) {
        *bytes = 1;
        return 0;
    }
    double sum = 0;
    for (long long k = 0; k < n; k++)
        sum += in[k];
    *out = float(sum * FACTOR);
    *clock += COST_US;
    return 0;
}

extern "C" int not_guaranteed(void *tmp, size_t *bytes, const float *in, float *out, long long n,
                              long long rows, double *clock)
{
    return run_to_run(tmp, bytes, in, out, n, rows, clock);
}
