// Host program of a custom operator. transforms.py prepends the types Element, Wide and Narrow (the
// accumulator), and the macros EXPRESSION, in a and b, and IDENTITY.
//
//     identity       writes the identity as a Narrow
//     fold N ROWS    reads rows of N elements and writes the result of each
//     pairs N        reads N values a, then N values b, and writes a[k] op b[k]
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
using namespace std;
static Wide combine(Wide a, Wide b) { return Wide(EXPRESSION); }
template <class T> static T *read_all(size_t count)
{
    T *values = static_cast<T *>(malloc((count + 1) * sizeof(T)));
    if (!values || fread(values, sizeof(T), count, stdin) != count)
        exit(1);
    return values;
}
template <class T> static void write(T value)
{
    if (fwrite(&value, sizeof value, 1, stdout) != 1)
        exit(1);
}
int main(int count, char **words)
{
    size_t n = count > 2 ? strtoull(words[2], nullptr, 10) : 0;
    size_t rows = count > 3 ? strtoull(words[3], nullptr, 10) : 0;
    if (!strcmp(words[1], "identity"))
        write(Narrow(IDENTITY));
    for (size_t row = 0; row < rows; row++) {
        Element *in = read_all<Element>(n);
        Wide value = Wide(IDENTITY);
        for (size_t k = 0; k < n; k++)
            value = combine(value, Wide(in[k]));
        free(in);
        write(value);
    }
    if (!strcmp(words[1], "pairs")) {
        Wide *a = read_all<Wide>(n), *b = read_all<Wide>(n);
        for (size_t k = 0; k < n; k++)
            write(combine(a[k], b[k]));
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
