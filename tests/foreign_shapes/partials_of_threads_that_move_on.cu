// expected: right  shape: a thread moves its own number on, and keeps where it began for its partial
__global__ void dot(const double *a, const double *b, double *c, int n)
{
    int tid = threadIdx.x + blockIdx.x * blockDim.x;
    int id = tid;
    double temp = 0;
    while (tid < n) {
        temp += a[tid] * b[tid];
        tid += blockDim.x * gridDim.x;
    }
    c[id] = temp;
}
