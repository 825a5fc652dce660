// Plays a trace. It has what each thread did, in its order, and no clock: laidOut() puts the warps
// beside each other by a rule. frame() draws a moment of that as an SVG; keys and clicks choose it.
"use strict";

const WIDTH = 1280, HEIGHT = 720, LANES = 32, SECTOR = 32, WORD = 4;
const SLOTS = 4;  // warps of a block that begin an instruction in one tick
const SLOWER = 24;  // so many times as long one warp takes for each, where asked for
const BUFFER = 2 ** 32;  // from one buffer's offsets to the next one's
const PIECE = 2, MOST_PIECES = 1 << 20;  // bytes of shared memory that are looked at together
const SIZES = {fp64: 8, fp32: 4, int32: 4, uint32: 4, fp16: 2, bf16: 2, int8: 1};
const KINDS = ["global loads", "global stores", "global atomics", "shared loads", "shared stores",
               "shared atomics", "barriers"];
const COLUMNS = ["requests", "sectors", "/request", "asked", "conflicts"];

let page, state;

// --- Events, and when they are ------------------------------------------------------------------

/// A block's warps, each with its events in order: requests, and meetings, which warps share.
function warpsOf(run, raw) {
  const warps = [];
  const add = (w, event) => (warps[w] ??= {events: []}).events.push(event);
  for (const fields of raw) {
    if (fields.length > 3) {
      const [w, place, bytes, lanes, sectors, conflicts, runs, values] = fields;
      const [kind, line, file] = run.places[place];
      const on = [...Array(LANES).keys()].filter(lane => lanes >>> lane & 1), offsets = [];
      for (let i = 0; i < runs.length; i += 3)
        for (let j = 0; j < runs[i + 2]; ++j)
          offsets.push([on[offsets.length], runs[i] + j * runs[i + 1]]);
      const valueOf = lane => values.length > 1 ? values[on.indexOf(lane)] : values[0];
      add(w, {w, kind, line, file, bytes, sectors, conflicts, offsets, valueOf,
              distinct: bytes * new Set(offsets.map(([, offset]) => offset)).size,
              store: !kind.endsWith("loads"), shared: kind.startsWith("shared")});
    } else {
      const [place, mask] = fields, [kind, line, file, what] = run.places[place];
      const all = [...Array(LANES).keys()].filter(w => mask >>> w & 1);
      const meeting = {meets: true, kind, line, file, what, size: all.length};
      for (const w of all) add(w, meeting);
    }
  }
  return Array.from(warps, warp => warp ?? {events: []});
}

/// Two warps touch the same bytes of shared memory and one of them stores there, with no barrier
/// between: notes such loads, and which come too early or too late in this order, or find what
/// nobody has stored. Where there are some, what each load finds is played again: the simulator ran
/// the threads in another order. Returns the lanes of warps that such a load has spoiled.
function findRaces(warps, order) {
  const stores = new Map(), memory = new Map(), stored = new Set(), spoiled = new Set();
  const own = warps.map(() => ({phase: -1}));  // a warp's phase; by line, its stores in that phase
  const pieces = (event, offset) => Array.from({length: Math.ceil(event.bytes / PIECE)},
                                               (_, i) => Math.floor(offset / PIECE) + i);
  warps.forEach(({events}, w) => {
    let phase = 0;
    for (const event of events) {
      if (event.meets) phase += event.size > 1 ? 1 : 0;
      else event.phase = phase;
      for (const [lane, offset] of event.shared && event.store ? event.offsets : [])
        for (const key of pieces(event, offset).map(piece => phase * MOST_PIECES + piece))
          stores.set(key, [...stores.get(key) ?? [], {w, event, lane}]);
    }
  });
  for (const {w, event} of order) {
    if (!event.shared) continue;
    if (own[w].phase !== event.phase) own[w] = {phase: event.phase};  // as many barriers passed
    for (const [lane, offset] of event.offsets) {
      const mine = pieces(event, offset);
      if (event.store) {
        for (const piece of mine) memory.set(piece, undefined);  // there is something
        memory.set(mine[0], event.valueOf(lane));
        continue;
      }
      (event.found ??= new Map()).set(lane, memory.has(mine[0]) ? memory.get(mine[0]) : null);
      const all = mine.map(piece => stores.get(event.phase * MOST_PIECES + piece) ?? [])
        .find(some => some.some(store => store.w !== w)) ?? [];
      // A line's n-th store is meant for who has passed that line n times.
      const times = all.length ? own[w][all[0].event.line] ?? 0 : 0;
      const [before, after] = [all[times - 1], all[times]].map(store => store?.w === w ? undefined
        : store);
      const none = !mine.every(piece => memory.has(piece));
      if (!before && !after && !none) continue;
      const early = none || Boolean(before && !stored.has(before.event));
      const late = Boolean(after && stored.has(after.event));
      const other = late ? after : before ?? after;
      if (early || late) spoiled.add(`${w} ${lane}`);
      (event.races ??= new Map()).set(lane, {w: other?.w, bad: early || late, early,
                                             value: other?.event.valueOf(other.lane)});
    }
    if (event.store) stored.add(event), own[w][event.line] = (own[w][event.line] ?? 0) + 1;
  }
  const cluster = warps.length > LANES;  // whose blocks see each other's memory
  if (cluster || !order.some(({event}) => event.races)) return undefined;
  for (const {event} of order)
    if (event.found && event.valueOf(event.offsets[0][0]) !== undefined)
      event.valueOf = lane => event.found.get(lane);
  return spoiled;
}

/// The rule: in a tick up to four warps begin their next event, in turns. A warp goes on when its
/// load from global memory has answered, `latency` ticks later, and from a barrier when all are
/// there.
function laidOut(warps, latency, slow) {
  const ready = warps.map(() => 0), here = new Map(), order = [], openings = [];
  let left = warps.reduce((sum, warp) => sum + warp.events.length, 0), first = 0, tick = 0;
  for (const warp of warps) warp.ticks = [];
  for (; left > 0; ++tick) {
    let begun = 0, last = first;
    for (let i = 0; i < warps.length && begun < SLOTS; ++i) {
      const w = (first + i) % warps.length, {events, ticks} = warps[w];
      const event = events[ticks.length];
      if (!event || ready[w] > tick) continue;
      ++begun, --left, last = w + 1;
      ticks.push(tick), order.push({tick, w, event});
      const long = event.kind === "global loads" ? latency : 1;
      ready[w] = tick + long * (w === slow ? SLOWER : 1);
      if (!event.meets || event.size === 1) continue;
      here.set(event, [...here.get(event) ?? [], w]);
      ready[w] = Infinity;
      if (here.get(event).length < event.size) continue;
      for (const each of here.get(event)) ready[each] = tick + 1;
      event.opens = tick, openings.push(tick);
    }
    first = last % warps.length;
  }
  return {warps, order, openings, end: Math.max(tick - 1, 0)};
}

/// What a state shows of a run: its launch and its block, laid out.
const kept = new Map();
function shownOf(state, number = state.run) {
  const run = page.runs[number], first = run.launches.findIndex(launch => launch.file);
  const l = number === state.run ? state.launch : Math.max(first, 0), launch = run.launches[l];
  const index = launch.blocks[state.block] ? state.block : Object.keys(launch.blocks)[0];
  const key = [number, l, index, state.latency, state.slow].join();
  const slow = warps => state.slow ? Math.min(3, warps.length - 1) : -1;
  if (!kept.has(key)) {
    const warps = warpsOf(run, launch.blocks[index] ?? []);
    const shown = {run, launch, index, arrays: arraysOf(run, launch), slow: slow(warps),
                   ...laidOut(warps, state.latency, slow(warps))};
    kept.set(key, {...shown, spoiled: findRaces(warps, shown.order)});
  }
  return kept.get(key);
}

/// A warp's latest event, undefined before its first.
function latest({warps}, {warp, tick}) {
  const {events, ticks} = warps[warp] ?? {events: [], ticks: []};
  return events[ticks.findLastIndex(at => at <= tick)];
}

function countsUntil(shown, tick) {
  const counts = {};
  for (const {tick: at, event} of shown.order) {
    if (at > tick) break;
    const own = counts[event.kind] ??= {requests: 0, bytes: 0, sectors: 0, conflicts: 0};
    ++own.requests;
    if (event.meets) continue;
    own.bytes += event.distinct, own.sectors += event.sectors, own.conflicts += event.conflicts;
  }
  return counts;
}

// --- Words --------------------------------------------------------------------------------------

/// The arrays that a launch touches in global memory, then those in shared memory.
function arraysOf(run, launch) {
  const touched = new Set([...launch.read, ...launch.written].map(([number]) => number));
  const arrays = [...touched].sort((a, b) => a - b).map(where => {
    const [bytes, type, columns, name] = run.buffers[where], size = SIZES[type] ?? WORD;
    return {where, name, size, begin: where * BUFFER, bytes, columns,
            rows: Math.ceil(bytes / size / columns)};
  });
  for (const [begin, bytes, type, rows, columns, name] of launch.shared) {
    const known = SIZES[type] && rows, size = SIZES[type] ?? WORD, all = Math.ceil(bytes / size);
    const square = LANES * Math.ceil(Math.sqrt(all) / LANES);
    const width = known ? columns || rows : Math.min(all, square);
    arrays.push({where: -1, name, size, begin, bytes, plain: !known, columns: width,
                 rows: Math.ceil(all / width)});
  }
  return arrays;
}

const arrayOf = (arrays, event, offset) => arrays.find(each => each.where < 0 === event.shared &&
  offset >= each.begin && offset < each.begin + each.bytes);
const range = (low, high) => low === high ? `[${low}]` : `[${low}..${high}]`;
const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
const kib = bytes => bytes < 1024 ? `${bytes} B` : `${Number((bytes / 1024).toFixed(1))} KiB`;

/// "A[5][0..31]": what a request touches, or one of its lanes.
function spell(arrays, event, only) {
  const offsets = event.offsets.filter(([lane]) => only === undefined || lane === only);
  const array = arrayOf(arrays, event, offsets[0][1]), elements = new Set();
  if (!array) return event.shared ? "shared memory" : "memory";
  for (const [, offset] of offsets)
    for (let byte = 0; byte < event.bytes; byte += array.size)
      elements.add(Math.floor((offset - array.begin + byte) / array.size));
  const ends = some => [Math.min(...some), Math.max(...some)];
  const [top, bottom] = ends([...elements].map(e => Math.floor(e / array.columns)));
  const [left, right] = ends([...elements].map(e => e % array.columns));
  if (array.plain || (bottom - top + 1) * (right - left + 1) !== elements.size)
    return `${elements.size} ${array.plain ? "words" : "elements"} of ${array.name}`;
  return array.name + (array.rows > 1 ? range(top, bottom) : "") + range(left, right);
}

/// What the chosen warp does.
function sentence(shown, state) {
  const {arrays, order} = shown, event = latest(shown, state), w = state.warp;
  if (state.tick > shown.end) return "This block is done.";
  if (!event) return shown.warps[w]?.events.length ? `Warp ${w} has not begun.`
    : `Warp ${w} of this block touches no memory, or there is none.`;
  const at = `line ${event.line}`;
  if (event.meets && event.size === 1) return `Warp ${w}: its lanes meet, ${event.what}, ${at}.`;
  if (event.meets) {
    const here = order.filter(each => each.event === event && each.tick <= state.tick).length;
    return here < event.size
      ? `Warp ${w} waits at the barrier, ${at}: ${here} of ${event.size} warps are there.`
      : `All ${event.size} warps have come to the barrier, ${at}, and go on.`;
  }
  const verb = event.kind.endsWith("atomics") ? "changes" : event.store ? "writes" : "reads";
  const begin = `Warp ${w} ${verb} ${spell(arrays, event)}, ${at}: `;
  if (state.part < LANES) return begin + "how many sectors?";
  if (event.races) {
    const races = [...event.races.values()], bad = races.find(race => race.bad) ?? races[0];
    const others = new Set(races.map(race => race.w)).size;
    if (bad.w === undefined) return `${begin}nobody has written all of that.`;
    return begin + (others > 1 ? "other warps write" : `warp ${bad.w} writes`) +
      " there, and no barrier says who is first" + (bad.bad ? bad.early
        ? ". It reads too early." : ". It reads too late."
        : ": right by luck (try o).");
  }
  const lanes = event.offsets.length, alike = lanes > 1 && event.distinct === event.bytes;
  if (event.kind.endsWith("atomics"))
    return `${begin}${many(lanes, "lane")}${alike ? ", one after the other" : ""}.`;
  const cost = event.shared ? many(event.conflicts, "bank conflict").replace(/^0/, "no")
    : many(event.sectors, "sector");
  return `${begin}${many(lanes, "lane")}, ${alike ? "all the same number, " : ""}${cost}.`;
}

const short = value => value === null ? "NaN" : value === undefined ? "\u2026"
  : Number(value.toPrecision(4)).toString().replace("-", "\u2212");

/// What the chosen lane does: "sum = 1.25 + 0.5 x -0.75" on a line that adds products of two loads.
function laneLine(shown, state) {
  const {run, arrays, warps} = shown, event = latest(shown, state), lane = state.lane;
  if (!event || event.meets) return "";
  if (!event.offsets.some(([on]) => on === lane)) return `lane ${lane} takes no part`;
  if (event.valueOf(lane) === undefined)
    return shown.index === page.block ? "" : "the page has values of one block alone: --block";
  const who = `lane ${lane}: `, race = event.races?.get(lane);
  const what = `${spell(arrays, event, lane)} = ${short(event.valueOf(lane))}`;
  if (race?.bad && race.w !== undefined)
    return `${who}${what}, ` + (race.early ? `before warp ${race.w} writes ${short(race.value)}`
      : `which warp ${race.w} has written over what was there`);
  const lines = run.files[event.file] ?? [];
  const sum = lines[event.line - 1]?.match(/(\w+) \+= \w+\[[^;]*\] \* \w+\[[^;]*\];/)?.[1];
  if (event.store && !event.shared && shown.spoiled)
    return `${who}${spell(arrays, event, lane)} ` + (!shown.spoiled.size
      ? "depends on which warp is first" : shown.spoiled.has(`${state.warp} ${lane}`) ? "is wrong"
        : "is right, in this order");
  // Declared as 0 outside of all loops, the sum holds all that this line has loaded.
  const begins = sum && lines.some(each => each.startsWith(`    float ${sum} = 0;`));
  if (!begins || event.store) return who + what;
  const loaded = warps[state.warp].events.filter((each, i) => each.line === event.line &&
    !each.meets && warps[state.warp].ticks[i] <= state.tick).map(each => each.valueOf(lane));
  let before = 0;
  for (let i = 0; i + 2 < loaded.length; i += 2)
    before += (loaded[i] ?? NaN) * (loaded[i + 1] ?? NaN);
  const from = loaded.length - (loaded.length % 2 || 2);
  return `${who}${sum} = ${short(Number.isNaN(before) ? null : before)} + ` +
    `${short(loaded[from])} \u00d7 ${short(loaded[from + 1])}`;
}

// --- Drawing ------------------------------------------------------------------------------------

const COLORS = {  // light and dark
  page: ["#ffffff", "#17171b"], text: ["#1b1b1f", "#ececf1"], quiet: ["#6b6b76", "#a6a6b2"],
  lit: ["#ffe99a", "#4d4000"], read: ["#bdd5ef", "#2c4a6e"], now: ["#e07000", "#ff9d3a"],
  mine: ["#7a2fb8", "#d49bff"], written: ["#8fc79a", "#2c6b3c"], fresh: ["#0f8a3c", "#5fe08a"],
  wrong: ["#d01c1c", "#ff6257"], wait: ["#a58a6a", "#8a7256"], differs: ["#00808a", "#4cc9d4"],
  none: ["none", "none"]};

/// An SVG of its own. `theme`: 0 light, 1 dark; else as the reader's browser has it.
function svg(content, theme) {
  const palette = i => Object.entries(COLORS).map(([name, colors]) =>
    `.${name}{fill:${colors[i]}}.line-${name}{stroke:${colors[i]}}`).join("");
  const style = theme === undefined
    ? `${palette(0)}@media (prefers-color-scheme:dark){${palette(1)}}` : palette(theme);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family=` +
    `"system-ui, sans-serif"><style>${style}.mono{font-family:ui-monospace,Menlo,Consolas,` +
    `"DejaVu Sans Mono",monospace}.bold{font-weight:600}.link{cursor:pointer}</style>` +
    `<rect width="${WIDTH}" height="${HEIGHT}" class="page"/>${content}</svg>`;
}

const escaped = text => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/// `look`: a color, mono, bold. `anchor`: start, middle or end.
function text(x, y, content, size = 16, look = "text", anchor = "start") {
  return `<text x="${x}" y="${y}" font-size="${size}" text-anchor="${anchor}" class="${look}" ` +
    `xml:space="preserve">${escaped(content)}</text>`;
}

const box = (x, y, width, height, look, more = "") =>
  `<rect x="${x}" y="${y}" width="${Math.max(width, 0)}" height="${height}" class="${look}" ` +
  `${more}/>`;
const line = (path, look, more = "") =>
  `<path d="${path}" fill="none" class="line-${look}" ${more}/>`;

/// Text in lines of so many letters, cut at blanks.
function wrapped(content, letters) {
  const lines = [];
  for (const word of content.split(" "))
    if (lines.length && lines.at(-1).length + 1 + word.length <= letters) lines.push(
      `${lines.pop()} ${word}`);
    else lines.push(word);
  return lines;
}
const paragraph = (x, y, content, letters, size, look) => wrapped(content, letters).map(
  (each, i) => text(x, y + 1.2 * size * i, each, size, look)).join("");

/// Where each array is drawn: A, B and C as they stand in a product, others side by side.
function placed(arrays, x, y, width, height) {
  const label = 20, gap = 12;
  const fit = (some, x, y, width, height) => {
    let best;
    for (let across = 1; across <= some.length; ++across) {
      const w = (width + gap) / across, h = height / Math.ceil(some.length / across);
      const cells = some.map(({rows, columns}) =>
        Math.min((w - gap) / columns, rows > 1 ? (h - label - gap) / rows : 24, 24));
      const least = Math.min(...cells.map((cell, i) => cell * some[i].columns));
      if (!best || least > best.least) best = {least, across, w, h, cells};
    }
    return some.map((array, i) => ({array, x: x + i % best.across * best.w, cell: best.cells[i],
                                    y: y + Math.floor(i / best.across) * best.h + label}));
  };
  const product = ["A", "B", "C"].map(name => arrays.find(each => each.name === name));
  const shared = arrays.filter(each => each.where < 0);
  if (!product.every(each => each?.rows > 1) || arrays.length > 3 + shared.length)
    return fit(arrays, x, y, width, height);
  const [A, B, C] = product, side = (Math.min(width, height) - gap) / 2 - label;
  const cell = Math.min(side / (B.rows + 0.1), side / C.rows, side / C.columns);
  const right = x + width - cell * C.columns, low = y + label + B.rows * cell + gap + label;
  return [{array: A, x: right - gap - A.columns * cell, y: low, cell},
          {array: B, x: right, y: y + label, cell}, {array: C, x: right, y: low, cell},
          ...fit(shared, x, y, right - gap - x, B.rows * cell + label)];
}

/// Where the arrays' cells are read and written now, or were before.
function drawArrays(shown, state, x, y, width, height) {
  const {run, arrays, order} = shown, cells = new Map(arrays.map(array => [array, new Map()]));
  const mark = (event, color) => {
    const look = lane => event.races?.get(lane)?.bad ? "wrong"
      : event.store && !event.shared && shown.spoiled?.has(`${event.w} ${lane}`) ? "wrong" : color;
    for (const [lane, offset] of event.offsets) {
      const array = arrayOf(arrays, event, offset);
      for (let byte = 0; array && byte < event.bytes; byte += array.size)
        cells.get(array).set(Math.floor((offset - array.begin + byte) / array.size), look(lane));
    }
  };
  for (const {tick, event} of order)
    if (!event.meets && tick < state.tick && (!event.shared || event.store))
      mark(event, event.store ? "written" : "read");
  for (const {tick, event} of order)
    if (!event.meets && tick === state.tick) mark(event, event.store ? "fresh" : "now");
  const own = latest(shown, state);
  if (own && !own.meets) mark(own, "mine");
  return placed(arrays, x, y, width, height).map(({array, x, y, cell}) => {
    const size = array.plain ? kib(array.bytes) : [array.rows, array.columns].filter(n => n > 1)
      .join(" \u00d7 ") + (array.where < 0 ? " shared" : "");
    const last = run.launches.findLast(({written}) => written.some(([n]) => n === array.where));
    const found = shown.spoiled?.size || last !== shown.launch ? []
      : run.wrong.filter(([where]) => where === array.where);
    const wrong = new Set(found.map(([, offset]) => offset / array.size));
    for (const [, offset, never] of state.tick >= shown.end ? found : [])
      if (never) cells.get(array).set(offset / array.size, "wrong");
    const tall = array.rows > 1 ? cell : Math.max(cell, 10), parts = {}, own = cells.get(array);
    const colorOf = element => wrong.has(element) && ["written", "fresh", "mine"].includes(
      own.get(element)) ? "wrong" : own.get(element);
    for (let first = 0, next; first < array.rows * array.columns; first = next) {  // cells alike
      const color = colorOf(first), end = first - first % array.columns + array.columns;
      for (next = first + 1; next < end && colorOf(next) === color;) ++next;
      const [left, top, wide, high] = [x + first % array.columns * cell,
        y + Math.floor(first / array.columns) * tall, (next - first) * cell + 0.3, tall + 0.3]
        .map(value => value.toFixed(1));
      if (own.has(first)) (parts[color] ??= []).push(`M${left} ${top}h${wide}v${high}h-${wide}z`);
    }
    const frame = [x, y, array.columns * cell, array.rows * tall];
    const begin = array.where < 0 ? array.begin : 0;
    const after = 9.7 * array.name.length + 8;
    const room = [size, size.replace(" shared", ""), ""].find(
      each => after + 7 * each.length < frame[2] || !each);
    return text(x, y - 5, array.name, 16, "text mono bold") +
      text(x + after, y - 5, room, 14, "quiet") +
      Object.entries(parts).map(([color, path]) =>
        `<path d="${path.join("")}" class="${color}" shape-rendering="crispEdges"/>`).join("") +
      box(...frame, "none line-quiet", `pointer-events="all" data-array="${array.where}" data-at=` +
          `"${x} ${y} ${cell} ${tall} ${array.columns} ${array.size} ${begin}"`);
  }).join("");
}

/// The source around a line, the line lit. Where a line is long, its comment is left out.
function drawSource(shown, state, x, y, width, height) {
  const event = latest(shown, state) ?? shown.warps[state.warp]?.events[0] ?? shown.launch;
  const lines = shown.run.files[event.file] ?? [], end = event.file.split("/").at(-1);
  const others = page.runs.filter(run => run !== shown.run).map(run => Object.entries(run.files)
    .find(([file]) => file !== event.file && file.endsWith(end))?.[1]).filter(Boolean)[0];
  const letters = Math.floor((width - 38) / 9.04), rows = [], high = 19;
  const kernel = lines.findLastIndex((each, i) => i < event.line && each.startsWith("__global__"));
  for (let i = Math.max(0, kernel, event.line - 24); i < Math.min(lines.length, event.line + 24);
       ++i) {
    const long = lines[i].length > letters && !/^\s*\/\//.test(lines[i]);
    const kept = long ? lines[i].replace(/\s*\/\/.*/, "") : lines[i];
    const indent = " ".repeat(kept.length - kept.trimStart().length);
    wrapped(kept.trim(), letters - indent.length - 2).forEach((part, j) => rows.push(
      {line: i + 1, label: j ? "" : i + 1, look: /^\s*\/\//.test(kept) ? "quiet" : "text",
       text: (indent + (j ? "  " : "") + part).slice(0, letters),
       differs: others && kept.trim() && !others.includes(lines[i])}));
  }
  const fitting = Math.floor(height / high), at = rows.findIndex(row => row.line === event.line);
  let from = at < fitting - 2 ? 0
    : Math.max(0, Math.min(at - Math.floor(fitting / 2), rows.length - fitting));
  while (from < at && !rows[from].label) ++from;
  return text(x, y - 6, event.file, 14, "quiet") + rows.slice(from, from + fitting).map((row, i) =>
    (row.line === event.line ? box(x, y + i * high + 4, width, high, "lit") : "") +
    (row.differs ? box(x + 32, y + i * high + 4, 3, high, "differs") : "") +
    text(x + 30, y + (i + 1) * high, row.label, 14, "quiet", "end") +
    text(x + 38, y + (i + 1) * high, row.text, 15, `${row.look} mono`)).join("");
}

/// A row a warp, the latest ticks to the right: what it begins, half as high in shared memory, and
/// how long it waits. Dashed is what the rule says and not the trace.
function drawWarps(shown, state, x, y, width, height) {
  const ticks = 40, from = Math.max(0, state.tick - ticks + 1), step = (width - 36) / ticks;
  const high = Math.min(18, (height - 20) / shown.warps.length);
  const look = event => [...event.races?.values() ?? []].some(race => race.bad) ? "wrong"
    : event.meets ? "quiet" : event.store ? "fresh" : "now";
  const at = tick => x + 34 + (Math.min(Math.max(tick, from), state.tick + 1) - from) * step;
  const slow = shown.slow < 0 ? "" : `; ${shown.slow} is slow`;
  const title = text(x, y + 8, `warps, ${ticks} ticks${slow}`, 14, "quiet");
  const labelled = w => high > 14 || w === shown.slow ||
    w % 4 === 0 && (shown.slow < 0 || Math.abs(w - shown.slow) > 1);
  return title + shown.warps.map((warp, w) => {
    const top = y + 16 + w * high, middle = top + high / 2;
    let out = w === state.warp ? box(x, top, width, high, "lit") : "";
    if (labelled(w)) out += text(x + 28, middle + 5, w, 14, "quiet", "end");
    warp.events.forEach((event, i) => {
      const tick = warp.ticks[i], next = warp.ticks[i + 1] ?? tick + 1;
      if (tick > state.tick || next < from) return;
      const waits = event.meets && event.size > 1;
      if (waits) out += box(at(tick), top + 1, at(event.opens + 1) - at(tick), high - 2, "wait");
      else if (next > tick + 1 && at(next) > at(tick))
        out += line(`M${at(tick)} ${middle}H${at(next)}`, "quiet", 'stroke-dasharray="3 2"');
      if (!waits && tick >= from)
        out += box(at(tick), top + 1, step, event.shared ? high / 2 : high - 2, look(event));
    });
    return out + box(x, top, width, high, "none link", `pointer-events="all" data-warp="${w}"`);
  }).join("");
}

/// A warp's lanes above, the sectors or banks that they ask for below, joined by lines.
function drawLanes(shown, state, x, y, width, height) {
  const event = latest(shown, state);
  const step = width / LANES;
  if (event?.meets && event.size > 1) {
    const here = new Set(shown.order.filter(each => each.event === event && each.tick <= state.tick)
      .map(each => each.w));
    return text(x, y + 8, `warps at the barrier, line ${event.line}`, 14, "quiet") +
      text(x + width, y + 8, `${here.size} of ${event.size}`, 17, "text bold", "end") +
      shown.warps.map((_, w) => box(x + w * step + 1, y + 18, step - 2, 20,
                                    `${here.has(w) ? "wait" : "none"} line-quiet`) +
                      text(x + (w + 0.5) * step, y + 33, w, 13, "text", "middle")).join("");
  }
  if (!event || event.meets) return "";
  const banks = event.shared, unit = banks ? WORD : SECTOR;
  const units = new Map(), top = y + 18, low = y + height - 20, seen = [];
  for (const [, offset] of event.offsets)
    for (let at = offset; at < offset + event.bytes; at += WORD)
      units.set(Math.floor(at / unit), [...units.get(Math.floor(at / unit)) ?? [], at % unit]);
  const keys = [...units.keys()].sort((a, b) => a - b);
  const wide = Math.min(step, width / keys.length);
  const left = banks ? x : x + (width - wide * keys.length) / 2;
  const at = key => left + wide * (banks ? key % LANES : keys.indexOf(key));
  const asked = event.offsets.filter(([lane]) => lane < state.part);
  let out = "";
  for (const [lane, offset] of asked) {
    for (let part = offset; part < offset + event.bytes; part += unit)
      if (!seen.includes(Math.floor(part / unit))) seen.push(Math.floor(part / unit));
    const end = at(Math.floor(offset / unit)) + (offset % unit + Math.min(event.bytes, unit) / 2) /
      unit * wide;
    out += line(`M${x + (lane + 0.5) * step} ${top + 20}L${end} ${low}`,
                lane === state.lane ? "mine" : "now",
                `stroke-width="${lane === state.lane ? 3 : 1.2}"`);
  }
  for (let lane = 0; lane < LANES; ++lane)
    out += box(x + lane * step + 1, top, step - 2, 20, (asked.some(([on]) => on === lane)
      ? "lit" : "none") + (lane === state.lane ? " line-mine" : " line-quiet")) +
      text(x + (lane + 0.5) * step, top + 15, lane, 13, "text", "middle") +
      box(x + lane * step, top, step, 20, "none link", `pointer-events="all" data-lane="${lane}"`);
  for (let bank = 0; banks && bank < LANES; ++bank) {
    const words = seen.filter(key => key % LANES === bank).length;
    out += box(left + bank * step + 1, low, step - 2, 20,
               `${words > 1 && event.conflicts ? "now" : words ? "lit" : "none"} line-quiet`) +
      text(left + (bank + 0.5) * step, low + 15, words > 1 ? `\u00d7${words}` : bank, 13,
           words ? "text" : "quiet", "middle");
  }
  for (const key of banks ? [] : keys.filter(key => seen.includes(key))) {
    const number = seen.indexOf(key) + 1;
    for (const byte of number ? new Set(units.get(key)) : [])
      out += box(at(key) + 1 + byte / SECTOR * (wide - 2), low, (wide - 2) / SECTOR *
                 Math.min(WORD, event.bytes), 20, "lit");
    out += box(at(key) + 1, low, wide - 2, 20, "none line-quiet") +
      text(at(key) + wide / 2, low + 15, number || "", 14, "text bold", "middle");
  }
  const used = new Set(keys.map(key => key % LANES)).size, moved = seen.length * SECTOR;
  const told = state.part < LANES ? `this request: ${many(seen.length, "sector")} so far` : banks
    ? `${many(seen.length, "word")} in ${many(used, "bank")}: ${many(event.conflicts, "conflict")}`
    : `${many(seen.length, "sector")}: ${many(moved, "byte")} ${event.store ? "go" : "come"}, ` +
      `${event.distinct.toLocaleString("en")} of them ${event.store ? "written" : "asked for"}`;
  return out + text(x, y + 8, `lanes of warp ${event.w}`, 14, "quiet") +
    text(x + width, y + 8, told, 17, "text bold", "end");
}

function drawCounts(counts, title, x, y, width) {
  const columns = COLUMNS.filter(name => name !== "conflicts" || counts["shared loads"]);
  const at = i => x + 106 + (i + 1) * (width - 106) / columns.length;
  const kinds = KINDS.filter(kind => counts[kind]), high = Math.min(19, 80 / kinds.length);
  const shownAs = (kind, name) => {
    const own = counts[kind], is = kind.split(" ")[0];
    if (name === "/request") return is === "global" ? (own.sectors / own.requests).toFixed(2) : "";
    const fits = name === "requests" || is !== "barriers" &&
      (name === "asked" || (name === "sectors") === (is === "global"));
    return fits ? (own[name === "asked" ? "bytes" : name] ?? 0).toLocaleString("en") : "";
  };
  return text(x, y, title, 14, "quiet") +
    columns.map((name, i) => text(at(i), y, name, 14, "quiet", "end")).join("") +
    kinds.map((kind, row) => text(x, y + high * (row + 1), kind.replace("barriers", "warps met"),
                                  high - 3) +
      columns.map((name, i) => text(at(i), y + high * (row + 1), shownAs(kind, name), high - 3,
                                    "text", "end")).join("")).join("");
}

const LEGEND = [["read", "read before"], ["now", "read now"], ["written", "written before"],
                ["fresh", "written now"], ["mine", "the chosen warp"],
                ["wait", "waits at a barrier"], ["wrong", "wrong"],
                ["differs", "differs in the other"]];
const titleOf = ({program, kernel, size, title}) => `${program}, ${size}: ${title || kernel}`;
const blockOf = ({index, launch}) => index === undefined ? ""
  : `block (${index.split(",").slice(0, 2)}) of ${launch.grid[0]} \u00d7 ${launch.grid[1]}`;

/// The question, what its words mean, when it is, and what colors mean.
function around(state, end) {
  let x = 12;
  return text(12, 50, page.question ?? "", 18, "text bold") +
    text(12, 72, page.words ?? "", 15, "quiet") +
    text(WIDTH - 12, 712, "space plays, arrows step, ? lists all keys", 13, "quiet", "end") +
    (end === undefined ? ""
      : text(WIDTH - 12, 50, `tick ${state.tick} of ${end}: order, not time`, 15, "quiet", "end") +
      LEGEND.filter(([look]) => look !== "differs" || page.runs.length > 1).map(([look, what]) => {
        const at = x;
        x += 7 * what.length + 26;
        return box(at, 702, 11, 11, look) + text(at + 15, 712, what, 13, "quiet");
      }).join(""));
}

function drawBlock(state) {
  const shown = shownOf(state), {run, launch, index} = shown;
  const counts = state.whole ? launch.totals
    : countsUntil(shown, state.part < LANES ? state.tick - 1 : state.tick);
  const launched = run.launches.length > 1 ? `, launch ${state.launch + 1}: ${launch.name}` : "";
  const found = !run.wrong.length ? "" : `${many(run.wrong.length, "number")} found wrong` +
    (shown.spoiled ? ", in another order" : "");
  return text(12, 26, `${titleOf(run)}${launched}  ${blockOf(shown)}`, 20, "text bold") +
    text(WIDTH - 12, 70, found, 15, "wrong bold", "end") + around(state, shown.end) +
    drawSource(shown, state, 12, 104, 446, 490) + drawArrays(shown, state, 472, 84, 520, 380) +
    drawWarps(shown, state, 1006, 84, 262, 380) + drawLanes(shown, state, 472, 480, 796, 116) +
    paragraph(12, 628, index ? sentence(shown, state) : "A library's call: nobody saw its threads.",
              64, 21, "text bold") +
    text(12, 684, laneLine(shown, state), 16, "text mono") +
    drawCounts(counts, state.whole ? "whole launch" : "this block", 790, 616, 478);
}

/// Two kernels in step: of each its arrays, its warps, and the requests or the sectors so far.
function drawBoth(state) {
  const sides = [0, 1].map(run => shownOf(state, run)), end = lastTick();
  const measure = page.measure ?? "requests";
  const counts = sides.map(shown => countsUntil(shown, state.tick));
  const ends = sides.map(shown => countsUntil(shown, Infinity));
  const kinds = KINDS.slice(0, -1).filter(kind => ends.some(each => each[kind]?.[measure]));
  const most = Math.max(...kinds.flatMap(kind => ends.map(each => each[kind]?.[measure] ?? 0)));
  return around(state, end) + sides.map((shown, i) => {
    const x = 12 + 640 * i;
    const one = shown.run.launches.length > 1 ? `, of ${shown.launch.name} alone` : "";
    return text(x, 26, titleOf(shown.run), 17, "text bold") +
      text(x, 94, blockOf(shown) + one, 14, "quiet") +
      drawArrays(shown, state, x, 102, 400, 384) + drawWarps(shown, state, x + 412, 102, 200, 384) +
      paragraph(x, 514, sentence(shown, state), 62, 18) +
      text(x, 570, measure === "requests" ? "requests of a warp" : "sectors so far", 14, "quiet") +
      text(x + 612, 570, loadedUntil(shown, counts[i], state.tick), 17, "text bold", "end") +
      kinds.map((kind, row) => {
        const value = counts[i][kind]?.[measure] ?? 0, y = 594 + row * 24;
        return text(x, y, kind) + box(x + 118, y - 14, 390 * value / most, 18,
                                      kind.endsWith("stores") ? "fresh" : "now") +
          text(x + 612, y, value.toLocaleString("en"), 16, "text bold", "end");
      }).join("");
  }).join("");
}

/// What the threads of a block have asked global memory for.
function loadedUntil(shown, counts, tick) {
  const own = counts["global loads"], numbers = new Set();
  let loads = 0;
  if (page.measure === "sectors")
    return own ? `${(own.sectors / own.requests).toFixed(2)} sectors a load request` : "";
  for (const {tick: at, event} of shown.order)
    for (const [, offset] of at <= tick && event.kind === "global loads" ? event.offsets : [])
      for (let byte = 0; byte < event.bytes; byte += arrayOf(shown.arrays, event, offset).size)
        ++loads, numbers.add(offset + byte);
  return numbers.size ? `${loads.toLocaleString("en")} loads of ` +
    `${numbers.size.toLocaleString("en")} numbers: ${Math.round(loads / numbers.size)} each` : "";
}

/// What each launch reads from memory and writes back, an arrow for each array; one run after the
/// other.
function drawTrips(state) {
  const sum = numbers => numbers.reduce((all, each) => all + each, 0);
  const trips = launch => sum([...launch.read, ...launch.written].map(([, bytes]) => bytes));
  const all = page.runs.map(run => sum(run.launches.map(trips))), most = Math.max(...all);
  const high = 620 / page.runs.length;
  let before = 0;
  const note = "each byte that a launch touches counts once: caches may give it again";
  return around(state) + text(WIDTH - 12, 26, note, 14, "quiet", "end") +
    text(12, 712, "read", 15, "now bold") + text(56, 712, "written", 15, "fresh bold") +
    page.runs.map((run, i) => {
    const count = Math.min(run.launches.length, 8);  // are in view
    const y = 84 + i * high, width = Math.min(1256 / count, 420), low = y + high - 94;
    const step = state.step - before, from = Math.min(Math.max(step - count, 0),
                                                      run.launches.length - count);
    const done = run.launches.slice(0, Math.max(step, 0));
    const total = sum(done.map(trips)), over = done.length === run.launches.length;
    const times = over && i > 0 && total < all[0] ? all[0] / total : 0;
    const ratio = times ? `, ${times.toFixed(1)} times less` : "";
    before += run.launches.length;
    return text(12, y + 18, `${titleOf(run)}, ${run.launches.length} launch` +
                (run.launches.length > 1 ? "es" : "") +
                (count < run.launches.length ? `, here ${from + 1} to ${from + count}` : ""), 18,
                "text bold") +
      box(12, y + 28, 1256, 26, "read") + text(20, y + 46, "memory") +
      run.launches.map((launch, j) => {
        if (j < from || j >= from + count) return "";
        const x = 12 + (j - from) * width, arrows = j < step
          ? [...launch.read.map(each => [...each, "now"]),
             ...launch.written.map(each => [...each, "fresh"])] : [];
        const name = (launch.name.replace(/<.*/, "") + (launch.file ? "" : ", a library"))
          .slice(0, width / 9);
        return box(x + 4, low, width - 8, 44, `${j === step - 1 ? "lit" : "none"} line-quiet`) +
          text(x + width / 2, low + 28, name, 16, "text", "middle") +
          (launch.file ? box(x + 4, low, width - 8, 44, "none link",
                             `pointer-events="all" data-launch="${i} ${j}"`) : "") +
          arrows.map(([number, bytes, look], k) => {
            const size = Math.min(15, width / arrows.length / 4.4);
            const at = x + (k + 0.4) * width / arrows.length, down = look === "now";
            const [from, to, tip] = down ? [y + 56, low - 2, -9] : [low - 2, y + 56, 9];
            return line(`M${at} ${from}V${to}`, look, 'stroke-width="3"') +
              `<path d="M${at - 6} ${to + tip}h12L${at} ${to}z" class="${look}"/>` +
              text(at + 4, (y + low) / 2 + 24, run.buffers[number][3], size, "text mono") +
              text(at + 4, (y + low) / 2 + 42, kib(bytes), size);
          }).join("");
      }).join("") + box(12, low + 54, 700 * total / most, 20, "quiet") +
      text(24 + 700 * total / most, low + 70, `${kib(total)} read and written${ratio}`, 18,
           "text bold");
  }).join("");
}

const VIEWS = {block: drawBlock, lanes: drawBlock, both: drawBoth, trips: drawTrips};
const frame = (state, theme) => svg(VIEWS[state.view](state), theme);

// --- Moving -------------------------------------------------------------------------------------

const turn = (value, by, size) => size ? (value + by + size) % size : 0;
const lastTick = () => Math.max(...(state.view === "both" ? [0, 1] : [state.run]).map(
  run => shownOf(state, run).end));
const launches = () => page.runs.reduce((all, run) => all + run.launches.length, 0);

/// To the nearest of some ticks after now, or before.
function jump(ticks, by) {
  if (!ticks.length) return;
  const found = by > 0 ? ticks.find(tick => tick > state.tick)
    : ticks.findLast(tick => tick < state.tick);
  state.tick = found ?? (by > 0 ? lastTick() : 0);
}

function toEvent(by) {
  if (state.view === "trips") state.step = Math.min(Math.max(state.step + by, 0), launches());
  else if (by > 0 && state.part < LANES) state.part = LANES;
  else jump(shownOf(state).warps[state.warp]?.ticks ?? [], by);
}

/// To the first store to shared memory after a barrier.
function toTile(by) {
  const both = state.view === "both" ? [0, 1] : [state.run];
  const {order, openings} = both.map(run => shownOf(state, run)).find(
    each => each.order.some(({event}) => event.shared)) ?? {order: [], openings: []};
  const fills = [-1, ...openings].map(from => order.find(({tick, event}) =>
    tick > from && event.shared && event.store)?.tick).filter(tick => tick !== undefined);
  jump([...new Set(fills)], by);
}

function toWarp(by) { state.warp = turn(state.warp, by, shownOf(state).warps.length); }

function toLaunch(by) {
  state.launch = turn(state.launch, by, page.runs[state.run].launches.length), state.tick = 0;
}

function toBlock(by) {
  const {launch, index} = shownOf(state), all = Object.keys(launch.blocks);
  state.block = all[turn(all.indexOf(index), by, all.length)] ?? state.block;
}

/// To the lane of this block that wrote an element, and there to its first load that comes too
/// early or too late, or else to the store.
function toWriter(where, offset) {
  const shown = shownOf(state);
  offset += Math.max(where, 0) * BUFFER;
  const stores = shown.order.filter(({event}) => event.store && event.shared === where < 0 &&
    event.offsets.some(([, at]) => offset >= at && offset < at + event.bytes));
  const {event, w, tick} = stores.findLast(each => each.tick <= state.tick) ?? stores[0] ?? {};
  if (!event) return false;
  const [lane] = event.offsets.find(([, at]) => offset >= at && offset < at + event.bytes);
  const {events, ticks} = shown.warps[w];
  const bad = events.findIndex(each => each.races?.get(lane)?.bad);
  Object.assign(state, {warp: w, lane, tick: bad < 0 ? tick : ticks[bad]});
  return true;
}

/// To the next warp's first load that comes too early or too late; without such, to the next number
/// that the program found wrong, in whatever launch and block wrote it last.
function toWrong() {
  const {run, warps, spoiled} = shownOf(state);
  for (let i = 1; spoiled && i <= warps.length; ++i) {
    const warp = (state.warp + i) % warps.length, {events, ticks} = warps[warp];
    const races = event => [...event.races ?? []].find(([, race]) => race.bad || !spoiled.size);
    const first = events.findIndex(races);
    if (first < 0) continue;
    return void Object.assign(state, {warp, lane: races(events[first])[0], tick: ticks[first]});
  }
  const written = run.wrong.filter(([, , never]) => !never);
  if (!written.length) return;
  state.wrong = turn(state.wrong ?? -1, 1, written.length);
  const [where, offset] = written[state.wrong], before = {...state};
  for (let launch = run.launches.length - 1; launch >= 0; --launch)
    for (const block of [state.block, ...Object.keys(run.launches[launch].blocks)])
      if (Object.assign(state, {launch, block, tick: Infinity}) && toWriter(where, offset)) return;
  state = before;
}

let playing = 0;
function play(on) {
  clearInterval(playing);
  playing = on && setInterval(beat, {trips: 1200, lanes: 120}[state.view] ?? 60);
}

/// A tick, or in other views the next lane or launch.
function beat() {
  const {view, part} = state;
  if (view === "lanes" && part < LANES && latest(shownOf(state), state)?.offsets) ++state.part;
  else if (view === "lanes") state.part = LANES, toEvent(1), state.part = 0;
  else if (view === "trips") toEvent(1);
  else state.tick = Math.min(state.tick + 1, lastTick());
  const over = state.view === "trips" ? state.step >= launches() : state.tick >= lastTick();
  if (over) play(false);
  show();
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([frame(state)], {type: "image/svg+xml"}));
  link.download = `${page.runs[state.run].program}-${state.tick}.svg`;
  link.click();
}

const KEYS = [  // what it is for, and a key and what it does, twice where there are two ways
  ["play, stop", " ", () => play(!playing)],
  ["next, previous event of this warp", "ArrowRight", () => toEvent(1),
   "ArrowLeft", () => toEvent(-1)],
  ["next, previous barrier that opens", "ArrowDown", () => jump(shownOf(state).openings, 1),
   "ArrowUp", () => jump(shownOf(state).openings, -1)],
  ["next, previous tile", "PageDown", () => toTile(1), "PageUp", () => toTile(-1)],
  ["the beginning, the end", "Home", () => { state.tick = state.step = 0; },
   "End", () => { state.tick = lastTick(), state.step = launches(); }],
  ["next, previous warp (or click one)", "w", () => toWarp(1), "W", () => toWarp(-1)],
  ["next, previous lane (or click one)", "e", () => { state.lane = turn(state.lane, 1, LANES); },
   "E", () => { state.lane = turn(state.lane, -1, LANES); }],
  ["next, previous block", "b", () => toBlock(1), "B", () => toBlock(-1)],
  ["next, previous launch", "n", () => toLaunch(1), "N", () => toLaunch(-1)],
  ["the other kernel or version", "m", () => {
    state.run = turn(state.run, 1, page.runs.length);
    state.launch = Math.max(page.runs[state.run].launches.findIndex(launch => launch.file), 0);
    state.tick = Math.min(state.tick, lastTick());
  }],
  ["both kernels in step", "c", () => {
    state.view = state.view === "both" || page.runs.length < 2 ? "block" : "both";
  }],
  ["what launches read and write, and back", "v", () => {
    state.view = state.view === "trips" ? "block" : "trips";
  }],
  ["counts of the whole launch", "t", () => { state.whole = !state.whole; }],
  ["next load that comes too early or too late, or wrong number", "r", toWrong],
  ["one warp is slow, or none", "o", () => { state.slow = 1 - state.slow; }],
  ["memory answers sooner, later", "[", () => { state.latency = Math.max(state.latency - 4, 1); },
   "]", () => { state.latency = Math.min(state.latency + 4, 80); }],
  ["copy a link to this frame", "l", () => navigator.clipboard?.writeText(location.href)],
  ["this frame as SVG", "p", save],
  ["black screen", ".", () => document.body.classList.toggle("black")],
  ["these keys, or not", "?", () => document.getElementById("help").showModal()]];

// --- The page -----------------------------------------------------------------------------------

const LINK = ["run", "launch", "block", "warp", "lane", "tick", "view", "step", "latency", "slow"];

function show() {
  state.warp = Math.max(Math.min(state.warp, ...state.view === "both" ? []
    : [shownOf(state).warps.length - 1]), 0);
  state.tick = Math.min(state.tick, lastTick());
  document.getElementById("frame").innerHTML = frame(state);
  const link = LINK.map(name => `${name[0] === "t" ? "t" : name}=${state[name]}`).join("&");
  history.replaceState(null, "", `#${link}`);
}

/// The state that the link asks for, as far as there is such a one.
function begin() {
  const link = new URLSearchParams(location.hash.slice(1).replace("t=", "tick="));
  state = {run: 0, launch: 0, block: page.block, warp: 0, lane: 0, tick: 0, view: "block", step: 0,
           latency: 12, slow: 0, part: LANES, ...page.look};
  const take = (name, most) => {
    const asked = Math.floor(Number(link.get(name) ?? state[name]));
    state[name] = asked >= 0 ? Math.min(asked, most) : state[name];
  };
  if (Object.hasOwn(VIEWS, link.get("view") ?? "")) state.view = link.get("view");
  if (page.runs.length < 2 && state.view === "both") state.view = "block";
  state.block = link.get("block") ?? state.block;
  take("run", page.runs.length - 1), take("latency", 80), take("slow", 1), take("lane", LANES - 1);
  const own = page.runs[state.run].launches;
  state.launch = Math.max(own.findIndex(launch => launch.file), 0);
  take("launch", own.length - 1), take("step", launches());
  state.block = shownOf(state).index ?? page.block, state.latency ||= 1;
  take("warp", Math.max(shownOf(state).warps.length - 1, 0)), take("tick", lastTick());
  if (state.view === "lanes" && !link.has("tick")) toEvent(1), state.part = 0;  // to be counted
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const help = document.querySelector("dialog[open]");
  if (help) return event.key === "?" && help.close();
  const row = KEYS.find(row => row.includes(event.key, 1));
  if (!row) return;
  if (event.key !== " ") play(false);
  if (!["ArrowRight", "m", " "].includes(event.key)) state.part = LANES;
  row[row.indexOf(event.key, 1) + 1]();
  event.preventDefault();
  show();
}

function onClick(event) {
  const {launch, warp, lane, array, at} = event.target.dataset;
  if (launch) {
    [state.run, state.launch] = launch.split(" ").map(Number);
    state.view = "block", state.tick = 0;
  } else if (warp) state.warp = Number(warp);
  else if (lane) state.lane = Number(lane);
  else if (at) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      event.target.getScreenCTM().inverse());
    const [x, y, cell, tall, columns, size, begin] = at.split(" ").map(Number);
    toWriter(Number(array), begin + size * (Math.floor((point.y - y) / tall) * columns +
                                            Math.floor((point.x - x) / cell)));
  } else return;
  play(false);
  show();
}

async function open() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent),
                                 letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  page = JSON.parse(await new Response(stream).text());
  document.getElementById("help").innerHTML = `<table>${KEYS.map(([what, ...keys]) =>
    `<tr><td>${keys.filter((_, i) => i % 2 === 0).join(" ").replace(/^ $/, "space")
      .replaceAll("Arrow", "")}<td>${what}`).join("")}</table>`;
  begin();
  addEventListener("keydown", onKey);
  addEventListener("hashchange", () => (begin(), show()));
  document.getElementById("frame").addEventListener("click", onClick);
  show();
}
open();
