"""A page of kernels for the projector: source on the left, instructions on the right, and what
belongs together lights up. One file, which needs no network."""

import html
import re
from pathlib import Path

import instructions
from shared.command_line import PROJECT

KINDS = {  # class: what the legend says
    "global": "global memory", "shared": "shared memory", "local": "local memory: spills",
    "tensor": "tensor cores", "arithmetic": "arithmetic", "control": "branches and waits",
}
JUMPS = re.compile(r"(BRA|BRX|BRXU|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|YIELD|NANOSLEEP|"
                   r"bra|brx|ret|exit|call)\b")
AROUND = 2  # lines of a header before and after those that were inlined

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1b1b1f; --quiet: #6b6b76;
  --rule: #d5d5dc; --on: #ffe99a; --bar: #f3f3f6; --global: #0b57a4; --shared: #0b6b5f;
  --local: #b3140f; --tensor: #98217c; --arithmetic: #8a4300; --control: #4a4f5c; }
@media (prefers-color-scheme: dark) { :root { --page: #17171b; --text: #ececf1; --quiet: #a6a6b2;
  --rule: #3a3a42; --on: #4d4000; --bar: #222228; --global: #7cc0ff; --shared: #5fe0c8;
  --local: #ff9d96; --tensor: #f7a3e0; --arithmetic: #f8c46b; --control: #b7bcc9; } }
* { box-sizing: border-box; }
html { font-size: clamp(14px, 1.15vw, 40px); }
body { margin: 0; height: 100dvh; overflow: hidden; display: flex; flex-direction: column;
  background: var(--page); color: var(--text); font: 1rem/1.4 system-ui, sans-serif; }
header { padding: 8px 16px; background: var(--bar); border-bottom: 1px solid var(--rule); }
h1 { margin: 0; font-size: 1.25rem; }
nav { display: flex; flex-wrap: wrap; gap: 4px 8px; margin: 6px 0; }
nav button { font: inherit; color: inherit; padding: 2px 10px; border: 1px solid var(--rule);
  border-radius: 6px; background: var(--page); cursor: pointer; }
nav button[aria-pressed=true] { background: var(--on); }
p { margin: 2px 0; color: var(--quiet); }
.legend span { margin-right: 14px; white-space: nowrap; }
section { flex: 1; min-height: 0; display: none;
  grid-template-columns: minmax(0, 53fr) minmax(0, 47fr); }
section.shown { display: grid; }
.pane { overflow: auto; padding: 6px 0 40vh;
  font: var(--letters, 1rem)/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (max-width: 700px) { section { grid: repeat(2, minmax(0, 1fr)) / 100%; }
  .pane { padding-bottom: 10vh; } }
.pane + .pane { box-shadow: 0 0 0 1px var(--rule); z-index: 1; }
h2 { margin: 10px 12px 2px; font-size: 0.9rem; color: var(--quiet); }
.row { display: flex; padding: 0 12px; cursor: pointer; }
.row > span { white-space: pre-wrap; overflow-wrap: anywhere; }
.row .at { flex: none; width: 3.2em; color: var(--quiet); text-align: right; padding-right: 1em; }
.code .at { width: 4.2em; margin-right: 0.6em; padding-right: 0.6em; }
.line > span + span { padding-left: min(var(--hang), 12vw);
  text-indent: max(-1 * var(--hang), -12vw); }
.row.none { color: var(--quiet); cursor: default; }
.code { border-left: 5px solid transparent; }
.code.loop .at { border-right: 3px solid var(--quiet); }
.legend .loop { border-left: 3px solid var(--quiet); padding-left: 6px; }
.on { background: var(--on); }
.label { padding: 0 12px; color: var(--quiet); }
KINDS
"""

SCRIPT = """
const all = (from, what) => [...from.querySelectorAll(what)];
const places = row => row.dataset.at ? row.dataset.at.split(" ") : [];
function partners(row) {  // a line's instructions, or an instruction's lines
  const other = row.classList.contains("code") ? ".line" : ".code";
  const mine = new Set(places(row));
  return all(row.closest("section"), other).filter(each => places(each).some(at => mine.has(at)));
}
function light(row, jump) {
  for (const each of all(document, ".on")) each.classList.remove("on");
  const others = partners(row);
  for (const each of [row, ...others]) each.classList.add("on");
  if (jump && others.length) others[0].scrollIntoView({block: "center"});
}
for (const row of all(document, ".row[data-at]")) {
  row.addEventListener("mouseenter", event => {  // not where a key has scrolled it below the mouse
    if (event.movementX || event.movementY) light(row);
  });
  row.addEventListener("click", event => {
    event.preventDefault();
    light(row, true);
  });
}
function step(by) {  // to the next source line with code
  const lines = all(document, "section.shown .line[data-at]");
  const at = lines.findIndex(line => line.classList.contains("on")) + by;
  const line = lines[Math.max(0, Math.min(at, lines.length - 1))];
  line.scrollIntoView({block: "center"});
  light(line, true);
}
function zoom(by) {
  const now = parseFloat(getComputedStyle(document.querySelector(".shown .pane")).fontSize);
  document.body.style.setProperty("--letters", Math.max(12, Math.min(now + by, 40)) + "px");
}
const keys = {j: [step, 1], ArrowDown: [step, 1], k: [step, -1], ArrowUp: [step, -1],
  "+": [zoom, 2], "=": [zoom, 2], "-": [zoom, -2],
  "?": [() => document.querySelector("#keys").toggleAttribute("hidden")]};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  const [act, by] = keys[event.key];
  act(by);
});
const buttons = all(document, "nav button"), sections = all(document, "section");
function show(chosen) {
  buttons.forEach((each, i) => each.setAttribute("aria-pressed", i === chosen));
  sections.forEach((each, i) => each.classList.toggle("shown", i === chosen));
}
buttons.forEach((each, i) => each.addEventListener("click", () => show(i)));
show(0);
"""


def kind_of(instruction, group):
    """The class of an instruction: one of KINDS, or none for addresses, moves and the like."""
    found = {instructions.LOADS: "global", instructions.STORES: "global",
             instructions.COPIES: "global", instructions.ATOMICS: "global",
             instructions.SHARED_LOADS: "shared", instructions.SHARED_STORES: "shared",
             instructions.LOCAL: "local", instructions.TENSORS: "tensor",
             instructions.ARITHMETIC: "arithmetic", instructions.SPECIAL: "arithmetic",
             instructions.BARRIERS: "control"}.get(group, "")
    return found or ("control" if JUMPS.match(instruction.opcode) else "")


def ranges(numbers, last):
    """Lines with some around them, as ranges that do not touch."""
    parts = []
    for number in sorted(numbers):
        first, end = max(number - AROUND, 1), min(number + AROUND, last)
        if parts and first <= parts[-1][1] + 1:
            parts[-1][1] = end
        else:
            parts.append([first, end])
    return parts


def kernel_range(lines, numbers):
    """All lines of a kernel: from its head, above the first that made instructions, to its end."""
    first, last = min(numbers), max(numbers)
    while first > 1 and not re.match(r"(?!\s|//|\}|#).*\(", lines[first - 1]):
        first -= 1
    while first > 1 and re.match(r"template|\[\[|__global__.*\)$", lines[first - 2]):
        first -= 1
    while last < len(lines) and not lines[last - 1].startswith("}"):
        last += 1
    return [first, last]


def source_pane(kernel, places, source_lines, anchor):
    """The left side: the kernel, and below it what was inlined from elsewhere."""
    by_file = {}
    for file, number in {place for each in places for place in each}:
        by_file.setdefault(file, set()).add(number)
    out = []
    for file in sorted(by_file, key=lambda file: (file != kernel.file, file)):
        lines, numbers = source_lines(file), by_file[file]
        own = file == kernel.file and lines
        for first, last in ([kernel_range(lines, numbers)] if own else
                            ranges(numbers, max(len(lines), max(numbers)))):
            out.append(f"<h2>{html.escape(Path(file).relative_to(PROJECT).as_posix())}</h2>")
            for i in range(first, last + 1):
                text = lines[i - 1] if i <= len(lines) else ""
                hang = len(text) - len(text.lstrip()) + 4  # where a line too long goes on
                at = f' data-at="{anchor(file)}:{i}"' if i in numbers else ""
                out.append(f'<div class="row line{"" if at else " none"}"{at}>'
                           f'<span class="at">{i}</span>'
                           f'<span style="--hang: {hang}ch">{html.escape(text)}</span></div>')
    return out


def code_pane(code, places, loop, anchor, kinds):
    """The right side: the instructions, in their order."""
    out = []
    for i, (instruction, own, kind) in enumerate(zip(code, places, kinds)):
        out += [f'<div class="label">{html.escape(label)}:</div>' for label in instruction.labels]
        at = " ".join(f"{anchor(file)}:{number}" for file, number in own)
        names = " ".join(filter(None, ["row code", kind, "loop" if i in loop else ""]))
        title = f' title="{KINDS[kind]}"' if kind else ""
        out.append(f'<div class="{names}"{title}' + (f' data-at="{at}"' if at else "") +
                   f'><span class="at">{instruction.address}</span>'
                   f"<span>{html.escape(instruction.text)}</span></div>")
    return out


def page(program, show, kernels):
    """The whole page."""
    sections, used = [], set()
    for kernel in kernels:
        code = show.code(kernel)
        # Of the project's own lines: the innermost, and the one in src/ that it was inlined into.
        places = [list(dict.fromkeys(
            place for place in instructions.places_of(one) if instructions.is_own(place[0])))
            for one in code]
        files = sorted({file for own in places for file, _ in own})
        classes = [kind_of(one, (instructions.classify(one) or ("",))[0]) for one in code]
        used.update(classes)
        anchor = files.index
        figures = "; ".join(f"{name}: {value}" for name, value in show.figures(kernel))
        left = source_pane(kernel, places, instructions.source_lines, anchor)
        right = code_pane(code, places, instructions.main_loop(code), anchor, classes)
        sections.append((kernel.name, figures, "\n".join(left), "\n".join(right)))
    form = "SASS" if show.sass else "PTX"
    legend = "\n".join(f'<span class="{kind}">{text}</span>' for kind, text in KINDS.items()
                     if kind in used) + '\n<span class="loop">main loop</span>'
    colors = "\n".join(f".{kind} {{ color: var(--{kind}); border-left-color: var(--{kind}); }}"
                       for kind in KINDS)
    buttons = "".join(f"<button>{html.escape(name)}</button>" for name, *_ in sections)
    bodies = "".join(
        f'<section aria-label="{html.escape(name)}"><div class="pane">'
        f"<h2>{html.escape(figures)}</h2>\n{left}</div>\n"
        f'<div class="pane">\n{right}</div></section>\n'
        for name, figures, left, right in sections)
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{program}</title>\n<style>{STYLE.replace('KINDS', colors)}</style></head>\n"
            f"<body><header><h1>{program}: source and {form} for sm_{show.arch}</h1>\n"
            f'<nav>{buttons}</nav>\n<p class="legend">{legend}\n<span>? for keys</span></p>\n'
            '<p id="keys" hidden>+ and -: larger and smaller letters. Down or j, up or k: the next '
            "and the previous source line with code.</p></header>\n"
            f"{bodies}<script>{SCRIPT}</script></body></html>\n")
