// expected: refused  shape: elements of three floats
__global__ void add_points(const float3 *points, float3 *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= count) return;
    atomicAdd(&total->x, points[place].x);
    atomicAdd(&total->y, points[place].y);
    atomicAdd(&total->z, points[place].z);
}
