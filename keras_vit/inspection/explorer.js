"use strict";
const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const N = D.rows * D.columns, T = D.learned + N, H = D.heads, L = D.blocks.length;
// query: -1 for the mean of the patches, else a token.
const S = { image: 0, mode: "attention", block: L - 1, head: -1, query: D.classToken ? 0 : -1, cls: 0, held: true };

// ---- reading what was packed: base64, zlib, then square roots of shares of a row's largest ----
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function prepare(image) {
  if (image.codes) return;
  const picture = new Image();
  picture.src = image.picture;
  const wanted = [image.attention, image.scales, image.rollout, image.rolloutScales, ...image.predictions.map((p) => p.relevance)];
  const [codes, scales, rollout, rolloutScales, ...relevance] = await Promise.all(wanted.map(unpack));
  await picture.decode();
  Object.assign(image, { codes, scales, rolloutCodes: rollout, rolloutRows: rolloutScales, relevance, element: picture });
}

// ---- numbers ----
// Row (or column) `query` of one T x T matrix that begins at the given place of the codes.
function addLine(into, codes, scales, matrix, levels, query, reverse) {
  for (let k = 0; k < T; k++) {
    const q = reverse ? k : query, key = reverse ? query : k, row = matrix * T + q;
    const root = (codes[row * T + key] / (levels - 1)) * (scales[row] / 255);
    into[k] += root * root;
  }
}

function line(mode, block, head, query, reverse) {
  const image = D.images[S.image], total = new Float64Array(T);
  const queries = query >= 0 ? [query] : Array.from({ length: N }, (_, i) => D.learned + i);
  const heads = mode === "rollout" ? [0] : head >= 0 ? [head] : Array.from({ length: H }, (_, i) => i);
  for (const q of queries) for (const h of heads) {
    if (mode === "rollout") addLine(total, image.rolloutCodes, image.rolloutRows, 0, 256, q, reverse);
    else addLine(total, image.codes, image.scales, block * H + h, image.levels, q, reverse);
  }
  return total.map((v) => v / (queries.length * heads.length));
}

// What is drawn: values of the patches, the range, and what the learned tokens get.
function current() {
  const image = D.images[S.image];
  if (S.mode === "relevance") {
    const values = Float64Array.from(image.relevance[S.cls], (v) => v / 255);
    return { values, low: 0, high: 1, learned: [] };
  }
  if (S.mode === "position") {
    const q = S.query - D.learned;
    const values = Float64Array.from({ length: N }, (_, k) => (q < 0 ? 0 : D.similarity[q * N + k] / 127.5 - 1));
    return { values, low: -1, high: 1, learned: [] };
  }
  const all = line(S.mode, S.block, S.head, S.query, $("reverse").checked);
  const values = all.slice(D.learned);
  // In rollout few patches stand far above all others, which would be equally dark beside them.
  const brightest = S.mode === "rollout" ? values.slice().sort()[Math.floor(0.97 * N)] : Math.max(...values);
  return { values, low: 0, high: brightest || 1, learned: Array.from(all.slice(0, D.learned)) };
}

// ---- drawing ----
const INFERNO = ["000004", "160b39", "420a68", "6a176e", "932667", "bc3754", "dd513a", "f37819", "fca50a", "f6d746", "fcffa4"]
  .map((c) => [0, 2, 4].map((i) => parseInt(c.slice(i, i + 2), 16)));
function color(share) {
  const place = Math.min(Math.max(share, 0), 1) * (INFERNO.length - 1), i = Math.min(Math.floor(place), INFERNO.length - 2);
  return INFERNO[i].map((v, c) => v + (INFERNO[i + 1][c] - v) * (place - i));
}
function paint(canvas, values, low, high, alpha) {
  canvas.width = D.columns; canvas.height = D.rows;
  const pixels = new ImageData(D.columns, D.rows);
  values.forEach((v, i) => {
    const share = (v - low) / (high - low || 1);
    pixels.data.set([...color(share), 255 * alpha(share)], 4 * i);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
const patchName = (token) => `row ${Math.floor((token - D.learned) / D.columns)}, column ${(token - D.learned) % D.columns}`;
function tokenName(token) {
  if (token < 0) return "mean of the patches";
  if (token >= D.learned) return "patch in " + patchName(token);
  return D.names[token];
}
const percent = (v) => (v > 0 && v < 1e-4) || v === 0 ? "< 0.01 %" : (100 * v).toPrecision(v < 0.1 ? 2 : 3) + " %";

function draw() {
  const image = D.images[S.image];
  if (!image.codes) return;
  const { values, low, high, learned } = current();
  const view = $("view"), width = Math.max(960, D.width), height = Math.round(width * D.height / D.width);
  if (view.width !== width || view.height !== height) { view.width = width; view.height = height; }
  const pen = view.getContext("2d"), strength = $("opacity").value / 100;
  pen.globalAlpha = 1; pen.imageSmoothingEnabled = true;
  pen.drawImage(image.element, 0, 0, width, height);
  // Little attention lets the image through, much covers it.
  const heat = paint(document.createElement("canvas"), values, low, high, (s) => 0.45 + 0.55 * Math.sqrt(Math.max(s, 0)));
  pen.globalAlpha = strength; pen.imageSmoothingEnabled = $("smooth").checked;
  pen.drawImage(heat, 0, 0, width, height);
  pen.globalAlpha = 1;
  if (S.query >= D.learned && S.mode !== "relevance") {
    const w = width / D.columns, h = height / D.rows, i = S.query - D.learned;
    const box = [(i % D.columns) * w, Math.floor(i / D.columns) * h, w, h];
    pen.lineWidth = 6; pen.strokeStyle = "#000"; pen.strokeRect(...box);
    pen.lineWidth = 3; pen.strokeStyle = "#35e0ff"; pen.strokeRect(...box);
  }
  $("largest").textContent = S.mode === "position" ? "1" : S.mode === "relevance" ? "most" : (S.mode === "rollout" ? "\u2265 " : "") + percent(high);
  document.querySelector(".legend span").textContent = S.mode === "position" ? "-1" : "0";
  say(values, learned);
  drawHeads();
  drawDistance();
  for (const button of $("queries").querySelectorAll("button")) button.setAttribute("aria-pressed", Number(button.dataset.token) === S.query);
  for (const button of $("classes").children) button.setAttribute("aria-pressed", S.mode === "relevance" && Number(button.dataset.rank) === S.cls);
  document.querySelector(`#modes input[value=${S.mode}]`).checked = true;
  $("block").value = S.block; $("head").value = S.head;
  $("blockname").textContent = D.blocks[S.block];
  $("headname").textContent = S.head < 0 ? "mean" : S.head;
  $("opacityname").textContent = $("opacity").value + "%";
  $("block").setAttribute("aria-valuetext", "block " + D.blocks[S.block]);
  $("head").setAttribute("aria-valuetext", S.head < 0 ? "mean of the heads" : "head " + S.head);
  $("block").disabled = $("head").disabled = S.mode !== "attention";
}

function say(values, learned) {
  const best = values.indexOf(Math.max(...values)), most = patchName(best + D.learned);
  const given = learned.map((v, i) => `${tokenName(i)} ${percent(v)}`).join(", ");
  const who = tokenName(S.query), reversed = $("reverse").checked;
  const name = who[0].toUpperCase() + who.slice(1);
  const where = `block ${D.blocks[S.block]}, ${S.head < 0 ? "mean of the heads" : "head " + S.head}`;
  let text;
  if (S.mode === "relevance") {
    const { label } = D.images[S.image].predictions[S.cls];
    text = `Relevance for ${label}: most from the patch in ${most}.`;
  } else if (S.mode === "position") {
    text = S.query < D.learned ? "Choose a patch: only patches have a place." : `${name}: cosine of its position embedding with those of all patches.`;
  } else if (reversed) {
    text = `${name}, ${S.mode === "rollout" ? "rollout" : where}: looked at most by ${most} (${percent(values[best])} of what that looks at).`;
  } else {
    text = `${name}, ${S.mode === "rollout" ? "rollout" : where}: most to ${most} (${percent(values[best])})${given ? "; to " + given : ""}.`;
  }
  $("said").textContent = text;
}

function drawHeads() {
  for (const button of $("heads").children) {
    const head = Number(button.dataset.head);
    const values = line("attention", S.block, head, S.query, $("reverse").checked).slice(D.learned);
    paint(button.firstChild, values, 0, Math.max(...values), () => 1);
    button.setAttribute("aria-pressed", head === S.head);
  }
}

function drawDistance() {
  const svg = $("distance"), distances = D.images[S.image].distances;
  const largest = Math.max(...distances.flat(), 1), x = (b) => 52 + (b + 0.5) * (356 / L), y = (d) => 216 - d * (200 / (largest * 1.05));
  const parts = [], step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => largest / s <= 6) || 1000;
  for (let d = 0; d <= largest; d += step) parts.push(`<line x1="52" x2="408" y1="${y(d)}" y2="${y(d)}"/><text x="46" y="${y(d) + 4}" text-anchor="end">${d}</text>`);
  const every = Math.ceil(L / 12);
  D.blocks.forEach((name, b) => { if (b % every === 0) parts.push(`<text x="${x(b)}" y="233" text-anchor="middle">${name}</text>`); });
  parts.push('<text x="230" y="253" text-anchor="middle">block</text><text transform="translate(12 116) rotate(-90)" text-anchor="middle">distance in pixels</text>');
  distances.forEach((row, b) => row.forEach((d, h) => {
    const here = b === S.block && (S.head < 0 || h === S.head) ? "here" : "";
    const tint = color(0.15 + 0.65 * (h / Math.max(H - 1, 1)));
    parts.push(`<circle class="${here}" data-block="${b}" data-head="${h}" cx="${x(b)}" cy="${y(d)}" r="5" fill="rgb(${tint})"><title>block ${D.blocks[b]}, head ${h}: ${d.toFixed(1)} pixels</title></circle>`);
  }));
  svg.innerHTML = parts.join("");
}

function drawSimilarity() {
  const canvas = $("similarity"), gap = 1, w = D.columns + gap, h = D.rows + gap;
  canvas.width = w * D.columns - gap; canvas.height = h * D.rows - gap;
  const pen = canvas.getContext("2d"), tile = document.createElement("canvas");
  for (let q = 0; q < N; q++) {
    const values = Array.from(D.similarity.subarray(q * N, (q + 1) * N));
    pen.drawImage(paint(tile, values, 0, 255, () => 1), (q % D.columns) * w, Math.floor(q / D.columns) * h);
  }
}

// ---- choosing ----
function set(change) { Object.assign(S, change); draw(); }
function patchAt(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * D.columns), row = Math.floor((event.clientY - box.top) / box.height * D.rows);
  const inside = (v, side) => Math.min(Math.max(v, 0), side - 1);
  return D.learned + inside(row, D.rows) * D.columns + inside(column, D.columns);
}
const patchMode = () => (S.mode === "relevance" ? "attention" : S.mode);
function move(rows, columns) {
  const i = S.query >= D.learned ? S.query - D.learned : Math.floor(D.rows / 2) * D.columns + Math.floor(D.columns / 2);
  const row = Math.min(Math.max(Math.floor(i / D.columns) + rows, 0), D.rows - 1);
  const column = Math.min(Math.max((i % D.columns) + columns, 0), D.columns - 1);
  set({ query: D.learned + row * D.columns + column, held: true, mode: patchMode() });
}
const limited = (v, low, high) => Math.min(Math.max(v, low), high);
const KEYS = {
  ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1),
  c: () => set({ query: D.classToken ? 0 : -1, held: true }),
  ",": () => set({ block: limited(S.block - 1, 0, L - 1) }), ".": () => set({ block: limited(S.block + 1, 0, L - 1) }),
  g: () => set({ head: limited(S.head - 1, -1, H - 1) }), h: () => set({ head: limited(S.head + 1, -1, H - 1) }),
};

function add(parent, kind, properties, ...children) {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  $(parent).append(element);
  return element;
}

async function choose(index) {
  const image = D.images[index];
  await prepare(image);
  S.image = index;
  S.cls = Math.min(S.cls, Math.max(image.predictions.length - 1, 0));
  $("classes").replaceChildren();
  image.predictions.forEach(({ label, probability }, rank) => {
    const bar = Object.assign(document.createElement("i"), { style: `width: ${100 * probability}%` });
    const [name, share] = [label, percent(probability)].map((t) => Object.assign(document.createElement("span"), { textContent: t }));
    const button = add("classes", "button", { type: "button", onclick: () => set({ mode: "relevance", cls: rank }) }, bar, name, share);
    button.dataset.rank = rank;
  });
  $("facts").textContent = `${L} blocks of ${H} heads; ${D.rows} x ${D.columns} patches of an image of ${D.width} x ${D.height} pixels; attention in ${image.levels} levels. All counts begin at 0.`;
  draw();
  document.body.dataset.ready = index;
}

async function start() {
  $("model").textContent = D.model;
  $("block").max = L - 1; $("head").max = H - 1;
  D.images.forEach((_, i) => add("image", "option", { value: i, textContent: D.images[i].name }));
  $("choose").hidden = D.images.length < 2;
  const some = D.images.some((image) => image.predictions.length);
  $("answers").hidden = !some;
  document.querySelector("#modes input[value=relevance]").parentElement.hidden = !some;
  for (let token = -1; token < D.learned; token++) {
    const button = add("queries", "button", { type: "button", textContent: tokenName(token), onclick: () => set({ query: token, held: true, mode: patchMode() }) });
    button.dataset.token = token;
  }
  for (let head = -1; head < H; head++) {
    const button = add("heads", "button", { type: "button", onclick: () => set({ head, mode: "attention" }) }, document.createElement("canvas"), head < 0 ? "mean" : `head ${head}`);
    button.dataset.head = head;
  }
  const bar = $("scale").getContext("2d");
  for (let i = 0; i < 256; i++) { bar.fillStyle = `rgb(${color(i / 255)})`; bar.fillRect(i, 0, 1, 1); }
  $("places").hidden = !D.positions;
  document.querySelector("#modes input[value=position]").parentElement.hidden = !D.positions;
  if (D.positions) { D.similarity = await unpack(D.positions); drawSimilarity(); }
  $("image").oninput = (e) => choose(Number(e.target.value));
  for (const input of document.querySelectorAll("#modes input")) input.oninput = () => set({ mode: input.value });
  $("block").oninput = (e) => set({ block: Number(e.target.value) });
  $("head").oninput = (e) => set({ head: Number(e.target.value) });
  for (const id of ["opacity", "smooth", "reverse"]) $(id).oninput = () => draw();
  const view = $("view");
  view.onpointermove = (e) => { if (e.pointerType === "mouse" && !S.held) { const query = patchAt(e); if (query !== S.query) set({ query }); } };
  view.onclick = (e) => { const query = patchAt(e); set(S.held && query === S.query ? { held: false } : { query, held: true, mode: patchMode() }); };
  view.onkeydown = (e) => { const act = !e.ctrlKey && !e.metaKey && !e.altKey && KEYS[e.key]; if (act) { e.preventDefault(); act(); } };
  $("similarity").onclick = (e) => set({ query: patchAt(e), held: true, mode: "position" });
  $("distance").onclick = (e) => { const { block, head } = e.target.dataset; if (block) set({ block: Number(block), head: Number(head), mode: "attention" }); };
  S.held = false;
  await choose(0);
}
start().catch((error) => { $("said").textContent = "This page cannot be shown: " + error.message; throw error; });
