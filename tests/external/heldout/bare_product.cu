__global__ void multiplyAll(const double* factor, double* product, int count) {
    __shared__ double s[128];
    int t = threadIdx.x;
    double p = 1.0;
    for (int i = t; i < count; i += blockDim.x) p *= factor[i];
    s[t] = p;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) {
        if (t < k) s[t] *= s[t + k];
        __syncthreads();
    }
    if (t == 0) *product = s[0];
}
