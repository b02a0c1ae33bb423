// expected: right  shape: the maximum of unsigned numbers by the function that has its name
__global__ void largest(const unsigned *in, unsigned n, unsigned *out) {
    unsigned most = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        most = umax(most, in[i]);
    atomicMax(out, most);
}
