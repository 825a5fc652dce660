"""Kernels' names, as demanglers write them, and how the source calls them."""

import collections
import re

# The line that a kernel's counts stand below, as the simulator and count.sh print it.
LAUNCH = re.compile(
    r"^(?P<name>.+): \([\dx ]+\) blocks of \((?P<block>[\dx ]+)\) threads, one launch$",
    re.MULTILINE)


def shorten(name):
    """Ways to write a kernel's name, from the shortest to the full one: what the source calls it,
    then with its template arguments, then with its namespaces."""
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    text = without_parameters(re.sub(r" \[clone [^]]*\]", "", text))
    scopes, arguments = split_name(text)
    base = scopes[-1]
    if re.match(r"(Kernel2?|device_kernel)$", base) and "cutlass" in arguments:
        # CUTLASS's entry point: what it computes is its template argument.
        inner = split_name(first_argument(arguments))[0][-1]
        return [inner, f"{base}{arguments}", name]
    short_arguments = re.sub(r"\b(\w+::)+", "", arguments)
    return [base, base + short_arguments, "::".join(scopes) + arguments, name]


def depths(text):
    """For each character how many brackets it stands in; a bracket counts as being inside."""
    depth, opened = [], []
    for i, c in enumerate(text):
        if c in "<([{":
            opened.append(c)
        depth.append(len(opened))
        if c == ">" and opened[-1:] == ["<"]:
            opened.pop()
        elif c in ")]}":
            while opened and opened.pop() != {")": "(", "]": "[", "}": "{"}[c]:
                pass  # a less-than
    return depth


def without_parameters(text):
    """Without parameter list and return type: both stand outside of all brackets."""
    begin = 0
    for i, (c, depth) in enumerate(zip(text, depths(text))):
        if c == "(" and depth == 1 and i > begin:
            return text[begin:i]
        if c == " " and depth == 0:
            begin = i + 1
    return text[begin:]


def split_name(text):
    """"a::b<c::d>" -> (["a", "b"], "<c::d>"). Arguments of the scopes are left out."""
    scopes, arguments = [""], ""
    for i, (c, depth) in enumerate(zip(text, depths(text))):
        if depth:
            arguments += c
        elif c != ":":
            scopes[-1] += c
        elif text[i - 1] == ":":
            scopes.append("")
            arguments = ""
    return scopes, arguments


def first_argument(arguments):
    """"<a<b, c>, d>" -> "a<b, c>"."""
    for i, (c, depth) in enumerate(zip(arguments, depths(arguments))):
        if depth == 1 and c in ",>" and i:
            return arguments[1:i].strip()
    return arguments


def short_names(names):
    """For each kernel's full name the shortest way to write it that is no other's."""
    found, left = {}, {name: shorten(name) for name in set(names)}
    while left:
        shown = collections.Counter([*found.values(), *(way for way, *_ in left.values())])
        found.update((name, way) for name, (way, *longer) in left.items()
                     if shown[way] == 1 or not longer)
        left = {name: longer for name, (_, *longer) in left.items() if name not in found}
    return found
