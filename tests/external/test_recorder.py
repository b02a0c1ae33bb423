"""Every way to launch a kernel is recorded as the host makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cudareduce.external.build import RecordingError
from cudareduce.external.recorder import HostFile, Limits
from cudareduce.external.recording import (
    CopyIn,
    CopyOut,
    Fill,
    Launch,
    LibraryCall,
    Pointer,
    Recording,
    Scalar,
)
from cudareduce.external.roles import segments


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def launches(recording: Recording) -> list[Launch]:
    return [step for step in recording.steps if isinstance(step, Launch)]


KERNEL = "__global__ void sum(const float *x, float *out, int n) { out[0] = x[threadIdx.x]; }\n"
TEMPLATE = """
template <class T, unsigned block, bool power_of_two>
__global__ void sum(const T *x, T *out, unsigned n) { __syncthreads(); }
"""
MAIN = """
int main() {{
  float *x, *out;
  cudaMalloc(&x, 4000);
  cudaMalloc((void **)&out, 16);
  {}
}}
"""


@dataclass(frozen=True)
class Idiom:
    """What a main() does with buffers `x` and `out`, and the launches that it makes."""

    name: str
    body: str
    expected: tuple[str, ...]
    kernel: str = KERNEL


IDIOMS = (
    Idiom("plain", "sum<<<4, 256>>>(x, out, 1000);", ("sum 4 256 0",)),
    Idiom("dim3", "dim3 g(2, 3), b = 64; sum<<<g, b, 8>>>(x, out, 1);", ("sum 2,3 64 8",)),
    Idiom("spaced", "sum <<< 4,\n 256 >> > (x, out, 1000);", ("sum 4 256 0",)),
    Idiom("stream", "cudaStream_t s; cudaStreamCreate(&s); sum<<<1, 2, 3, s>>>(x, out, 4);",
          ("sum 1 2 3 stream 1",)),
    Idiom("template", "sum<float, 128, true><<<8, 128>>>(x, out, 1000);",
          ("sum<float, 128u, true> 8 128 0",), TEMPLATE),
    Idiom("deduced", "sum<<<8, 128>>>(x, out, 7);", ("sum<float> 8 128 0",),
          "template <class T> __global__ void sum(const T *x, T *out, int n) {}"),
    Idiom("pointer", "auto k = &sum<float, 64, false>; k<<<1, 64>>>(x, out, 9);",
          ("sum<float, 64u, false> 1 64 0",), TEMPLATE),
    Idiom("table", "void (*k[])(const float *, float *, unsigned) = {sum<float, 1, true>, "
          "sum<float, 2, true>}; for (auto f : k) f<<<1, 32>>>(x, out, 9);",
          ("sum<float, 1u, true> 1 32 0", "sum<float, 2u, true> 1 32 0"), TEMPLATE),
    Idiom("macro", "LAUNCH(sum, 4, 256, x, out, 5);", ("sum 4 256 0",),
          "#define LAUNCH(k, g, b, ...) do { k<<<g, b>>>(__VA_ARGS__); } while (0)\n" + KERNEL),
    Idiom("configuration macro", "sum<<<CONFIG>>>(x, out, 5);", ("sum 3 64 0",),
          "#define CONFIG 3, 64\n" + KERNEL),
    Idiom("wrapper", "run<64>(x, out, 100);", ("sum 2 64 0",),
          KERNEL + "template <int block> void run(float *x, float *out, int n) "
          "{ sum<<<(n + block - 1) / block, block>>>(x, out, n); }"),
    Idiom("switch", "for (int t = 64; t <= 128; t *= 2) switch (t) { "
          "case 64: sum<float, 64, true><<<1, t>>>(x, out, 1); break; "
          "case 128: sum<float, 128, true><<<1, t>>>(x, out, 1); break; }",
          ("sum<float, 64u, true> 1 64 0", "sum<float, 128u, true> 1 128 0"), TEMPLATE),
    Idiom("default argument", "sum<<<1, 32>>>(x, out);", ("sum 1 32 0",),
          "__global__ void sum(const float *x, float *out, int n = 3) {}"),
    Idiom("partials", "for (int n = 1000; n > 1; n = (n + 255) / 256) "
          "sum<<<(n + 255) / 256, 256>>>(x, out, n);", ("sum 4 256 0", "sum 1 256 0")),
    Idiom("cudaLaunchKernel", "int n = 5; void *args[] = {&x, &out, &n}; "
          "cudaLaunchKernel((void *)sum, dim3(2), dim3(32), args, 16, 0);", ("sum 2 32 16",)),
    Idiom("cudaLaunchKernel of a variable", "int n = 5; void *args[] = {&x, &out, &n}; "
          "const void *k = (const void *)&sum; cudaLaunchKernel(k, 2, 32, args, 0, 0);",
          ("sum 2 32 0",)),
    Idiom("cooperative", "unsigned n = 5; void *args[] = {&x, &out, &n}; "
          "cudaLaunchCooperativeKernel((void *)sum<float, 32, true>, 2, 32, args);",
          ("sum<float, 32u, true> 2 32 0 cooperative",), TEMPLATE),
    Idiom("cudaLaunchKernelEx", "cudaLaunchConfig_t c = {}; c.gridDim = 4; c.blockDim = 32; "
          "cudaLaunchAttribute a[1]; a[0].id = cudaLaunchAttributeClusterDimension; "
          "a[0].val.clusterDim.x = 2; a[0].val.clusterDim.y = 1; a[0].val.clusterDim.z = 1; "
          "c.attrs = a; c.numAttrs = 1; cudaLaunchKernelEx(&c, sum, x, out, 3);",
          ("sum 4 32 0 cluster 2",)),
    Idiom("occupancy", "int b; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&b, sum, 256, 0); "
          "cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); "
          "sum<<<b * p.multiProcessorCount, 256>>>(x, out, 1);", ("sum 1056 256 0",)),
    Idiom("graph", "cudaStream_t s; cudaStreamCreate(&s); cudaGraph_t g; cudaGraphExec_t e; "
          "cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal); sum<<<1, 32, 0, s>>>(x, out, 1);"
          "cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&e, g, NULL, NULL, 0); "
          "cudaGraphLaunch(e, s); cudaGraphLaunch(e, s);",
          ("sum 1 32 0 stream 1", "sum 1 32 0 stream 1")),
    Idiom("namespace", "mine::sum<<<1, 32>>>(x, out, 1);", ("mine::sum 1 32 0",),
          f"namespace mine {{ {KERNEL} }}"),
    Idiom("launch bounds", "sum<<<1, 32>>>(x, out, 1);", ("sum 1 32 0",),
          KERNEL.replace("void", "void __launch_bounds__(256, 2)")),
    Idiom("refused", "sum<<<1, 2048>>>(x, out, 1); "
          "if (cudaGetLastError()) sum<<<2, 32>>>(x, out, 1);",
          ("sum 2 32 0",)),
    Idiom("checked", "CUDA_CHECK(cudaMemset(out, 0, 4)); sum<<<1, 32>>>(x, out, 1);",
          ("sum 1 32 0",)),
)  # fmt: skip


def told(launch: Launch) -> str:
    def extent(size: tuple[int, int, int]) -> str:
        while len(size) > 1 and size[-1] == 1:
            size = size[:-1]  # type: ignore[assignment]
        return ",".join(map(str, size))

    words = [launch.kernel, extent(launch.grid), extent(launch.block), str(launch.shared)]
    words += ["cooperative"] if launch.cooperative else []
    words += ["stream", str(launch.stream)] if launch.stream else []
    words += ["cluster", extent(launch.cluster)] if launch.cluster != (1, 1, 1) else []
    return " ".join(words)


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.name)
def test_launches_are_recorded(idiom: Idiom, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(idiom.kernel + MAIN.format(idiom.body))
    (recording,) = HostFile(path, cache=cache).record()
    assert tuple(map(told, launches(recording))) == idiom.expected
    assert recording.ended is None


def test_all_calls_of_a_program_are_recorded_in_order(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        KERNEL
        + """
__constant__ float scale;
int main() {
  const int n = 300;
  float h[n], two = 2, *x, *out;
  for (int i = 0; i < n; i++) h[i] = i;
  cudaMalloc(&x, sizeof h);
  cudaMalloc(&out, 4);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  cudaMemcpyToSymbol(scale, &two, 4);
  cudaMemset(out, 0, 4);
  sum<<<2, 256>>>(x + 1, out, n);
  cudaMemcpy(h, out, 4, cudaMemcpyDeviceToHost);
  printf("%d elements\\n", n);
}
"""
    )
    (recording,) = HostFile(path, cache=cache).record()
    x, symbol, out = recording.buffers
    assert (x.nbytes, symbol.symbol, out.nbytes) == (1200, "scale", 4)
    copied, scale, cleared, launch, result = recording.steps
    assert isinstance(copied, CopyIn) and copied.data is not None and copied.buffer == x.id
    assert copied.data[4:8] == b"\0\0\x80?"
    assert isinstance(scale, CopyIn) and scale.data == b"\0\0\0@" and scale.buffer == symbol.id
    assert cleared == Fill(out.id, 0, 4, 0)
    assert isinstance(launch, Launch) and launch.line == 13
    assert launch.arguments == (
        Pointer(x.id, 4, "float", 4),
        Pointer(out.id, 0, "float", 4),
        Scalar("int", b"\x2c\1\0\0", 300),
    )
    assert launch.parameters == (("x", "const float*"), ("out", "float*"), ("n", "int"))
    assert result == CopyOut(out.id, 0, 4)


def test_managed_memory_is_recorded_as_device_memory(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        KERNEL
        + """
int main() {
  float *x, *out;
  cudaMallocManaged(&x, 400);
  cudaMallocManaged(&out, 4);
  for (int i = 0; i < 100; i++) x[i] = i;
  sum<<<1, 128>>>(x, out, 100);
  cudaDeviceSynchronize();
  printf("%g\\n", *out);
  x[0] = 1;
  sum<<<1, 128>>>(x, out, 100);
}
"""
    )
    (recording,) = HostFile(path, cache=cache).record()
    assert [(type(step), getattr(step, "buffer", None)) for step in recording.steps] == [
        *((CopyIn, 0), (Launch, None), (CopyOut, 1), (CopyIn, 0), (Launch, None)),
    ]
    assert all(buffer.managed for buffer in recording.buffers)


def test_a_host_function_is_called(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        KERNEL
        + 'extern "C" void solve(const float *in, float *out, int N) '
        + "{ sum<<<(N + 255) / 256, 256>>>(in, out, N); }"
    )
    (recording,) = HostFile(path, cache=cache).record_sizes((1000,))
    assert recording.entry == "solve(in, out, N=1000)"
    assert [buffer.parameter for buffer in recording.buffers] == ["in", "out"]
    assert recording.buffers[0].nbytes == 4000
    assert launches(recording)[0].grid == (4, 1, 1)


def test_methods_and_static_functions_are_called(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        KERNEL
        + """
namespace mine {
struct Reducer {
  int block = 128;
  void run(const float *in, float *out, int n) const { sum<<<n / block, block>>>(in, out, n); }
  static void one(float *all, int n) { sum<<<1, 32>>>(all, all, n); }
};
}
"""
    )
    recordings = HostFile(path, cache=cache).record_sizes((1024,))
    assert [(r.entry, told(launches(r)[0])) for r in recordings] == [
        ("mine::Reducer::run(in, out, n=1024)", "sum 8 128 0"),
        ("mine::Reducer::one(all, n=1024)", "sum 1 32 0"),
    ]


def test_thrust_holds_memory(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        "#include <thrust/device_vector.h>\n#include <thrust/host_vector.h>\n"
        "#include <thrust/reduce.h>\n"
        + KERNEL
        + """
int main() {
  thrust::host_vector<float> h(100, 1.0f);
  thrust::device_vector<float> x = h, out(1);
  sum<<<1, 128>>>(thrust::raw_pointer_cast(x.data()), out.data().get(), x.size());
  float result = out[0];
  thrust::reduce(x.begin(), x.end());
}
"""
    )
    (recording,) = HostFile(path, cache=cache).record()
    assert [type(step) for step in recording.steps] == [
        *(CopyIn, CopyIn, Launch, CopyOut, LibraryCall),
    ]


def test_a_kernel_of_another_file_is_launched(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(
        "__global__ void sum(const float *, float *out, int n);\nfloat read_all(int n);\n"
        + MAIN.format("read_all(3); sum<<<4, 32>>>(x, out, 7);")
    )
    (recording,) = HostFile(path, cache=cache).record()
    assert told(launches(recording)[0]) == "sum 4 32 0"
    assert [name for name, _ in launches(recording)[0].parameters] == ["", "out", "n"]


def test_a_program_without_end_is_ended(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(KERNEL + MAIN.format("sum<<<1, 32>>>(x, out, 1); while (true);"))
    (recording,) = HostFile(path, cache=cache, limits=Limits(wall_s=1)).record()
    assert launches(recording)
    assert recording.ended == "it ran longer than 1 s"


ERRORS = {
    "has no host code that launches": KERNEL,
    "launches no kernel": KERNEL + "int main() { return 0; }",
    "needs torch": "#include <torch/extension.h>\n" + KERNEL
    + "void f(torch::Tensor x) { sum<<<1, 1>>>(x.data_ptr<float>(), 0, 1); }",
    "header mine.h is missing": '#include "mine.h"\n' + KERNEL
    + MAIN.format("mine(); sum<<<1, 1>>>(x, out, 1);"),
    "BLOCK is not defined. Add -D BLOCK=VALUE": KERNEL
    + MAIN.format("sum<<<1, BLOCK>>>(x, out, 1);"),
    "would refuse the launch": KERNEL + MAIN.format("sum<<<1, 2000>>>(x, out, 1);"),
}  # fmt: skip


@pytest.mark.parametrize("message", ERRORS)
def test_host_code_that_cannot_be_recorded_has_a_reason(
    message: str, tmp_path: Path, cache: Path
) -> None:
    path = tmp_path / "file.cu"
    path.write_text(ERRORS[message])
    with pytest.raises(RecordingError, match=message):
        HostFile(path, cache=cache).record()


def test_the_program_cannot_write_elsewhere(tmp_path: Path, cache: Path) -> None:
    path, target = tmp_path / "file.cu", tmp_path / "written"
    path.write_text(
        KERNEL
        + MAIN.format(
            f'system("touch {target}"); fopen("{target}", "w"); sum<<<1, 1>>>(x, out, 1);'
        )
    )
    (recording,) = HostFile(path, cache=cache).record()
    assert launches(recording)
    assert not target.exists()


SUM_MAIN = """
{top}
int main(int argc, char **argv) {{
  {set}
  float *h = (float *)malloc(n * sizeof(float)), *x, *out;
  for (int i = 0; i < n; i++) h[i] = rand();
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&out, (n + 255) / 256 * 4);
  cudaMemcpy(x, h, n * sizeof(float), cudaMemcpyHostToDevice);
  sum<<<(n + 255) / 256, 256>>>(x, out, n);
}}
"""
KNOBS = {
    "argument 1 of main()": ("", "int n = argc > 1 ? atoi(argv[1]) : 5000;"),
    "argument 2 of main()": ("", "int n = argc > 2 ? atoi(argv[2]) : 5000;"),
    "--n": ("#include <helper_cuda.h>", 'int n = getCmdLineArgumentInt(argc, argv, "n");'),
    "#define COUNT, line 3": ("#define COUNT (1 << 20)", "int n = COUNT;"),
    "int N, line 3": ("const int N = 1024 * 64;\nint values[N];", "int n = N;"),
    "int n, line 5": ("", "int n = 1e6;"),
    "standard input": ("", 'int n; if (scanf("%d", &n) != 1) return 1;'),
}


@pytest.mark.parametrize("words", KNOBS)
def test_host_code_is_recorded_at_other_sizes(words: str, tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    top, initial = KNOBS[words]
    path.write_text(KERNEL + SUM_MAIN.format(top=top, set=initial))
    recordings = HostFile(path, cache=cache).record_sizes((33, 1000, 100003))
    assert [(r.size, launches(r)[0].grid[0]) for r in recordings] == [
        *((33, 1), (1000, 4), (100003, 391)),
    ]
    assert {recording.varied for recording in recordings} == {words}
    is_constant = "line" in words
    assert all(("33" in (recordings[0].source or "")) == is_constant for _ in recordings)


def test_a_square_has_other_sizes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(KERNEL + SUM_MAIN.format(top="", set="int w = 64, n = w * w;"))
    recordings = HostFile(path, cache=cache).record_sizes((1024, 5000))
    assert [recording.size for recording in recordings] == [1024, 4900]


def test_host_code_without_a_size_has_no_other_recordings(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "file.cu"
    path.write_text(KERNEL + MAIN.format("sum<<<1, 32>>>(x, out, 1);"))
    assert HostFile(path, cache=cache).record_sizes((33,)) == ()


LOOP_WITHOUT_END = """
__global__ void add(const int *x, int *sum) { atomicAdd(sum, x[threadIdx.x]); }
int main() {
  int host[64] = {}, result, *x, *sum;
  cudaMalloc(&x, sizeof host);
  cudaMalloc(&sum, sizeof(int));
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  for (;;) {
    cudaMemset(sum, 0, sizeof(int));
    add<<<1, 64>>>(x, sum);
    cudaMemcpy(&result, sum, sizeof(int), cudaMemcpyDeviceToHost);
  }
}
"""


def test_a_loop_without_end_is_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "loop.cu"
    path.write_text(LOOP_WITHOUT_END)
    [recording] = HostFile(path, cache=tmp_path / "cache").record()
    assert recording.ended == "it repeated a step without end"
    assert len(segments(recording)) == 1
