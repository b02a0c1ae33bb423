// expected: right  if: none of its elements is NaN  shape: one thread writes a value and its place to two pointers
__global__ void best(const float *values, float *value, int *place, int count)
{
    float mine = values[0];
    int where = 0;
    for (int k = 1; k < count; ++k)
        if (values[k] > mine) mine = values[where = k];
    *value = mine;
    *place = where;
}
