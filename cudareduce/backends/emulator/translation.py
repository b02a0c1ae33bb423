"""Translates a CUDA kernel file into C++ for g++; line numbers stay the same.

The translation also inserts calls of the runtime. They fill uninitialised variables, and mark
branches and loops that contain barriers. They also mark early `return` statements, since a thread
that returns early may skip later barriers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from cudareduce.backends.protocol import Source
from cudareduce.cuda_source import parse_cuda, text, walk, without_comments

_ARGUMENTS = r"\((?:[^()]|\([^()]*\))*\)"
_ENTRY = re.compile(
    r'extern\s+"C"\s+(?P<words>(?:(?:__global__|static|void|__launch_bounds__\s*'
    rf"{_ARGUMENTS}|__(?:maxnreg|cluster_dims|block_size)__\s*{_ARGUMENTS})\s*)+)(?P<name>\w+)\s*\("
)
_BOUNDS = re.compile(rf"__launch_bounds__\s*(?P<arguments>{_ARGUMENTS})")
#: `min_cc` in the front matter; such a kernel is compiled with __CUDA_ARCH__ of at least that.
_MIN_CC = re.compile(r'^[ \t]*min_cc\s*=\s*"(\d+)\.(\d)"', re.MULTILINE)
DEFAULT_ARCH = 800
_ARCH_CONDITION = re.compile(r"\b__CUDA_ARCH__\s*(>=|<=?|>|==|!=)\s*(\d{3,4})\b")
_MOST_ARCHS = 3
_DYNAMIC_SHARED = re.compile(
    r"extern\s+(?P<first>(?:[\w:]+\s+)*?)__shared__\s+"
    rf"(?:(?:__align__|alignas)\s*{_ARGUMENTS}\s*)?"
    r"(?P<type>[\w:<>\s*]*?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
#: For nvcc `extern "C" __device__ int x;` is a definition; for g++ only `extern "C" { ... }` is.
_EXTERN_C_VARIABLE = re.compile(r'extern\s+"C"\s+((?:__constant__|__device__)\s[^;(){}=]*;)')

#: nvcc accepts alignas after __shared__, g++ only at the start of the declaration.
_ALIGNED_SHARED = re.compile(
    rf"(?P<words>(?:static\s+)?__shared__\s+(?:static\s+)?)(?P<aligned>alignas\s*{_ARGUMENTS})"
)


#: Specifiers of variables that are not local to a thread, or that have an initial value.
_NOT_OWN = frozenset(["__shared__", "static", "extern", "constexpr", "const", "__constant__"])
#: Syntax nodes of declarators without an initialiser.
_PLAIN = frozenset(["identifier", "array_declarator", "pointer_declarator"])
#: Barriers of the whole block; `sync()` may also be a method of a smaller group.
_BARRIER = re.compile(r"\b__syncthreads(?:_or|_and|_count)?\b|\bsync\s*\(|\b__barrier_sync\b")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE)
_FUNCTIONS = ("function_definition", "lambda_expression")
_LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")

_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n]){1,12}\''
    r"|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*",
    re.DOTALL | re.MULTILINE,
)
_SCOPE = re.compile(r"\bnamespace\b[^(){};]*$|\bextern\s+$")
_OF_DEVICE = re.compile(r"\b__(?:device|global)__\b")
#: A host function that is no template. Only these types match: another word might be a macro that
#: contains __device__.
_HOST_FUNCTION = re.compile(
    r"\s*(?:(?:static|inline|const|unsigned|signed|int|long|short|char|bool|float|double|void"
    r"|size_t|u?int\d+_t|Acc|In|Out|Element|Scalar|Result)\b[\s*&]*)+"
    r"\b(?P<name>[A-Za-z_]\w*)\s*\([^{}]*\)\s*(?:noexcept\s*)?"
)
#: Host functions of the standard library. In constant expressions device code may use them.
_STANDARD = re.compile(
    r"(?<!\bcuda::)\bstd::(?P<name>(?:min|max|minmax|clamp|swap|sort|accumulate|reduce|fill|fill_n"
    r"|copy|copy_n|transform|inner_product|max_element|min_element|exchange|iota|partial_sum)"
    r"(?=\s*(?:<[^<>;{}]*>\s*)?\()"
    r"|numeric_limits(?=\s*<[^<>;{}]*>\s*::\s*\w+\s*\(\s*\))"
    r"|(?:plus|minus|multiplies|less|greater|bit_and|bit_or|bit_xor)"
    r"(?=\s*<[^<>;{}]*>\s*(?:\(\)|\{\})\s*\())"
)
_CONSTANT = re.compile(
    r"\b(?:const|constexpr|static_assert|template|enum|case|using|typedef|sizeof|decltype)\b"
    r"|\[[^\]]*$|<[^>()]*$"
)
_MARK = '_Pragma("GCC error \\"{} is a function of the host, which nvcc lets no kernel call\\"") '


def translation_unit(source: Source) -> str:
    """The kernel file as C++, followed by a declaration of an entry point for each kernel."""
    code = instrument(mark_host_calls(source.text))
    code = _DYNAMIC_SHARED.sub(_dynamic_shared, code)
    if "alignas" in code:
        code = _ALIGNED_SHARED.sub(r"\g<aligned> \g<words>", code)
    code = code.replace("__noinline__", "__attribute__((noinline))")
    code = _EXTERN_C_VARIABLE.sub(r'extern "C" { \1 }', code)
    if source.kernels:
        return f'#line 1 "<prelude>"\n{code}\n#line 1 "<entry points>"\n{_symbols(source)}'
    bounds: dict[str, str] = {}
    for kernel in _ENTRY.finditer(without_comments(parse_cuda(code))):
        bound = _BOUNDS.search(kernel["words"])
        bounds[kernel["name"]] = f", {bound['arguments'][1:-1]}" if bound else ""
    bounds.setdefault(source.entry, "")
    entries = "".join(f"CUDAEMU_ENTRY({name}{bound})\n" for name, bound in bounds.items())
    return f'#line 1 "<prelude>"\n{code}\n#line 1 "<entry points>"\n{entries}'


def _symbols(source: Source) -> str:
    """Lines that export the kernels and variables of an external program from its library."""
    lines = [
        f"CUDAEMU_KERNEL(kernel{k}, {_max_threads(source.text, name)}, {name})\n"
        for k, name in enumerate(source.kernels)
    ]
    lines += [f"CUDAEMU_VARIABLE(variable{k}, {v})\n" for k, v in enumerate(source.variables)]
    return "".join(lines)


def _max_threads(code: str, kernel: str) -> str:
    """The number of threads per block that __launch_bounds__ of a kernel allows, if it is a
    literal; else 1024."""
    name = kernel.partition("<")[0].rpartition("::")[2]
    bounds = re.search(rf"__launch_bounds__\s*\(\s*(\d+)[^()]*\)\s*(?:void\s+)?{name}\s*\(", code)
    return bounds[1] if bounds else "1024"


def _dynamic_shared(declaration: re.Match[str]) -> str:
    """The macro that replaces a declaration of dynamic shared memory, in a function or at file
    scope."""
    offset = len(declaration.string[: declaration.start()].encode())
    node = parse_cuda(declaration.string).descendant_for_byte_range(offset, offset)
    while node is not None and node.type != "compound_statement":
        node = node.parent
    macro = "CUDAEMU_SHARED_OF_FILE" if node is None else "CUDAEMU_DYNAMIC_SHARED"
    return f"{macro}({declaration['first']}{declaration['type']}, {declaration['name']});"


def archs(source: Source) -> tuple[int, ...]:
    """Values of __CUDA_ARCH__ for which to compile, the default first: one for each set of branches
    that the kernel file's conditions on __CUDA_ARCH__ select, at most 3, none below `min_cc`.

    Branches of the typed prelude do not count, since they affect speed only.
    """
    _, _, kernel_text = source.text.partition(f'#line 1 "{source.path}"\n')
    kernel_text = kernel_text or source.text
    [(a, b)] = _MIN_CC.findall(source.text)[:1] or [("7", "5")]
    least = 100 * int(a) + 10 * int(b)
    default = max(least, DEFAULT_ARCH)
    conditions = _ARCH_CONDITION.findall(kernel_text)
    limits = {int(n) + (10 if sign == ">" else 0) for sign, n in conditions}
    steps = sorted(n for n in limits if n > least)
    if not steps:
        return (default,)
    same_branches = max((n for n in steps if n <= default), default=least)
    return (default, *(n for n in (least, *steps) if n != same_branches))[:_MOST_ARCHS]


def instrument(code: str) -> str:
    """Insert calls that fill uninitialised variables, and mark early returns and the branches and
    loops that contain barriers. Line numbers stay the same."""
    data = code.encode(errors="replace")
    inserted: list[tuple[int, int, str]] = []
    with_barrier = _calls_with_barrier(code, parse_cuda(data))
    for node in walk(parse_cuda(data)):
        if node.type == "declaration" and (names := _uninitialised(node)):
            calls = "".join(f" cudaemu::unset({name});" for name in names)
            inserted.append((node.end_byte, 1, calls))
        elif node.type == "return_statement" and _is_early_return(node):
            at = node.start_byte + len("return")
            inserted.append((at, 1, " cudaemu::return_early()"))
        elif with_barrier and node.type in (*_LOOPS, "if_statement"):
            inserted += _barrier_scopes(node, with_barrier)
    parts, start = [], 0
    for place, _, call in sorted(inserted):
        parts += [data[start:place], call.encode()]
        start = place
    return b"".join([*parts, data[start:]]).decode(errors="replace")


def _uninitialised(declaration: Node) -> list[str]:
    """Names of the local variables that a declaration leaves uninitialised.

    The emulator fills them with NaN, large or small numbers, depending on the schedule. The pattern
    that g++ fills in is a small number, which a maximum would ignore.
    """
    is_local = declaration.parent is not None and declaration.parent.type == "compound_statement"
    before = declaration.prev_sibling
    # A different token before the declaration is one that the parser has skipped.
    whole = before is None or before.type == "comment" or text(before)[-1:] in ("{", ";", "}", "\n")
    words = {text(child) for child in declaration.children}
    if not is_local or not whole or declaration.has_error or words & _NOT_OWN:
        return []
    declarators = declaration.children_by_field_name("declarator")
    return [name for node in declarators if node.type in _PLAIN and (name := _name(node))]


def _name(declarator: Node) -> str:
    """The name of a variable or array in a declarator; empty for a function."""
    node: Node | None = declarator
    while node is not None and node.type in _PLAIN - {"identifier"}:
        node = node.child_by_field_name("declarator")
    return text(node) if node is not None and node.type == "identifier" else ""


def _is_early_return(node: Node) -> bool:
    """True for `return;` in a void function: the thread skips the rest of the function."""
    if text(node).replace(" ", "") != "return;":
        return False
    function = node.parent
    while function is not None and function.type not in _FUNCTIONS:
        function = function.parent
    if function is None or function.type == "lambda_expression":
        return False
    result = function.child_by_field_name("type")
    return result is not None and text(result) == "void" and "constexpr" not in text(function)


def _calls_with_barrier(code: str, root: Node) -> re.Pattern[str] | None:
    """A pattern that matches barriers of the block, and calls of functions and macros of this file
    that contain one, directly or not; None if the file has no barrier."""
    if not _BARRIER.search(code):
        return None
    bodies = dict(_MACRO.findall(code))
    for node in walk(root):
        if node.type == "function_definition":
            declarator = node.child_by_field_name("declarator")
            name = re.search(r"(\w+)\s*\(", text(declarator)) if declarator else None
            body = node.child_by_field_name("body")
            if name and body is not None:
                bodies[name[1]] = bodies.get(name[1], "") + text(body)
    names: set[str] = set()
    while True:
        pattern = "|".join([_BARRIER.pattern, *(rf"\b{name}\b" for name in sorted(names))])
        reached = {name for name, body in bodies.items() if re.search(pattern, body)}
        if reached == names:
            return re.compile(pattern)
        names = reached


def _barrier_scopes(node: Node, with_barrier: re.Pattern[str]) -> list[tuple[int, int, str]]:
    """Insertions (byte offset, rank among equal offsets, text) that mark each body of a branch or
    loop that contains a barrier."""
    function: Node | None = node
    while function is not None and function.type != "function_definition":
        function = function.parent
    if function is None or "constexpr" in text(function).partition("{")[0]:
        return []
    line = f"__LINE__, {'true' if node.type in _LOOPS else 'false'}"
    insertions: list[tuple[int, int, str]] = []
    for field in ("body", "consequence", "alternative"):
        body = node.child_by_field_name(field)
        if body is not None and body.type == "else_clause":
            body = next((child for child in reversed(body.children) if child.is_named), None)
        if body is None or body.type == "if_statement" or not with_barrier.search(text(body)):
            continue
        mark = f" CUDAEMU_BARRIER_SCOPE({line})"
        if body.type == "compound_statement":
            insertions.append((body.start_byte + 1, 0, mark))
        else:
            insertions += [(body.start_byte, 0, "{" + mark + " "), (body.end_byte, 2, " }")]
    return insertions


def mark_host_calls(text: str) -> str:
    """Insert a pragma that makes g++ report an error before each call of a host function in device
    code. Line numbers stay the same."""
    seen = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    bodies = list(_bodies(seen))
    marks: dict[int, str] = {}
    hosts = _host_functions(text, seen, [head for head, _, _ in bodies])
    for head, begin, end in bodies:
        if not _OF_DEVICE.search(head):
            continue
        for call in _STANDARD.finditer(seen, begin, end):
            statement = re.split(r"[;{}]", seen[begin : call.start()])[-1]
            if not _CONSTANT.search(statement):
                marks[call.start()] = f"std::{call['name']}"
        for name in hosts:
            # The name used without a call is a variable of that name.
            if not re.search(rf"\b{name}\b(?!\s*\()", head + seen[begin:end]):
                for call in re.finditer(rf"(?<![\w.:>]){name}\s*\(", seen[begin:end]):
                    before = seen[begin : begin + call.start()].rstrip()
                    word = re.search(r"(?:\w+|>)$", before)  # a type: this is a declaration
                    if word is None or word[0] in ("return", "else"):
                        marks[begin + call.start()] = name
    parts, done = [], 0
    for place in sorted(marks):
        parts += [text[done:place], _MARK.format(marks[place])]
        done = place
    return "".join(parts) + text[done:]


def _bodies(seen: str) -> Iterator[tuple[str, int, int]]:
    """The function and type definitions at namespace scope: the text before the opening brace, and
    the offsets of the two braces."""
    depth = start = begin = 0
    head = ""
    for match in re.finditer(r"[{};]", seen):
        brace, place = match[0], match.start()
        if brace == "{":
            if depth == 0 and _SCOPE.search(seen, start, place):
                start = place + 1
                continue
            if depth == 0:
                head, begin = seen[start:place], place
            depth += 1
        elif brace == "}" and depth > 0:
            depth -= 1
            if depth == 0:
                yield head, begin, place
                start = place + 1
        elif depth == 0:
            start = place + 1


def _host_functions(text: str, seen: str, heads: list[str]) -> list[str]:
    """Names of functions that are defined without __device__ and never declared with it."""
    names = [match["name"] for head in heads if (match := _HOST_FUNCTION.fullmatch(head))]
    return [
        name
        for name in dict.fromkeys(names)
        if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(|\bstruct\s+{name}\b", seen)
        and not re.search(rf"#\s*define\s+{name}\b", text)
        and sum(1 for head in heads if re.search(rf"\b{name}\s*\(", head)) == 1
    ]
