// What explorer_data.js gives, drawn; and what is clicked and typed.
// ---- drawing ----
const INFERNO = ["#000004", "#160b39", "#420a68", "#6a176e", "#932667", "#bc3754", "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4"];
const STOPS = INFERNO.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
function color(share) {
  const place = limited(share, 0, 1) * (STOPS.length - 1), i = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[i].map((v, c) => v + (STOPS[i + 1][c] - v) * (place - i));
}
// One pixel for each patch; CSS stretches the canvas.
function paint(canvas, { rows, columns }, pixel) {
  const pixels = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) pixels.data.set(pixel(i), 4 * i);
  canvas.width = columns; canvas.height = rows;
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}
const inColor = (colors) => (i) => [...colors.subarray(3 * i, 3 * i + 3), 255];
const inHeat = (values, low, high, alpha = () => 1) => (i) => {
  const share = (values[i] - low) / (high - low || 1);
  return [...color(share), 255 * alpha(share)];
};
// Little attention lets the image through, much covers it.
const veil = (share) => 0.4 + 0.6 * Math.sqrt(Math.max(share, 0));

function draw() {
  shown().forEach((look, p) => {
    if (!look.data) return;
    drawPicture($("stage").children[p], look);
    drawTiles($("heads").children[p], look);
    drawDistance($("distance").children[p].firstChild, look);
    $("classes").children[p].querySelectorAll("button").forEach((button, rank) =>
      button.setAttribute("aria-pressed", S.mode === "relevance" && rank === rankOf(look)));
    $("components").children[p].querySelectorAll("button").forEach((button, b) =>
      button.setAttribute("aria-pressed", S.mode === "components" && b === blockOf(look)));
  });
  for (const button of all("#queries button")) button.setAttribute("aria-pressed", button.textContent === S.query);
  document.querySelector(`#modes [value=${S.mode}]`).checked = true;
  const models = shown().map((look) => look.model), [first] = shown(), head = S.head < 0 ? "mean" : S.head;
  $("block").max = Math.max(...models.map((m) => m.blocks.length)) - 1;
  $("head").max = Math.max(...models.map((m) => m.heads)) - 1;
  $("block").value = S.block; $("head").value = S.head;
  $("blockname").textContent = first.model.blocks[blockOf(first)];
  document.querySelector("h2 .blockname").textContent = first.model.blocks[blockOf(first)];
  $("headname").textContent = head;
  $("opacityname").textContent = $("opacity").value + "%";
  $("block").setAttribute("aria-valuetext", "block " + first.model.blocks[blockOf(first)]);
  $("head").setAttribute("aria-valuetext", S.head < 0 ? "mean of the heads" : "head " + head);
  $("block").disabled = !["attention", "components"].includes(S.mode);
  $("head").disabled = S.mode !== "attention";
}

function drawPicture(figure, look) {
  const part = (name) => figure.querySelector("." + name), { model } = look, found = current(look);
  const { values, low, high, colors } = found, known = colors ?? values?.length;
  figure.classList.toggle("sharp", !$("smooth").checked);
  part("heat").style.opacity = known ? $("opacity").value / 100 : 0;
  if (known) paint(part("heat"), model, colors ? inColor(colors) : inHeat(values, low, high, veil));
  const box = part("box"), i = tokenOf(look) - model.learned;
  box.hidden = i < 0 || S.mode === "relevance";
  box.classList.toggle("held", S.held);
  Object.assign(box.style, {
    left: `${100 * (i % model.columns) / model.columns}%`, top: `${100 * Math.floor(i / model.columns) / model.rows}%`,
    width: `${100 / model.columns}%`, height: `${100 / model.rows}%`,
  });
  figure.querySelector(".legend").style.visibility = known && !colors ? "visible" : "hidden";
  part("low").textContent = low;
  part("high").textContent = S.mode === "position" ? "1" : S.mode === "relevance" ? "most" : (S.mode === "rollout" ? "\u2265 " : "") + percent(high);
  part("said").textContent = words(look, found);
}

function drawTiles(tiles, look) {
  for (const button of tiles.children) {
    const head = Number(button.dataset.head);
    const values = line(look, false, blockOf(look), head, tokenOf(look)).slice(look.model.learned);
    paint(button.firstChild, look.model, inHeat(values, 0, Math.max(...values)));
    button.setAttribute("aria-pressed", head === headOf(look));
  }
}

function drawDistance(svg, look) {
  const { distances, model: { blocks, heads } } = look, width = svg.clientWidth, bottom = 190;
  const largest = Math.max(...shown().flatMap((one) => one.distances.flat()), 1);
  const x = (b) => 44 + (b + 0.5) * ((width - 50) / blocks.length), y = (d) => bottom - d * ((bottom - 10) / (largest * 1.05));
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => largest / s <= 6) || 1000, every = Math.ceil(blocks.length / (width / 30));
  const parts = [`<text x="${width / 2 + 20}" y="${bottom + 36}" text-anchor="middle">block</text>`,
    `<text transform="translate(11 ${bottom / 2}) rotate(-90)" text-anchor="middle">distance in pixels</text>`];
  for (let d = 0; d <= largest; d += step) parts.push(`<line x1="44" x2="${width - 4}" y1="${y(d)}" y2="${y(d)}"/><text x="38" y="${y(d) + 4}" text-anchor="end">${d}</text>`);
  blocks.forEach((name, b) => { if (b % every === 0) parts.push(`<text x="${x(b)}" y="${bottom + 18}" text-anchor="middle">${name}</text>`); });
  distances.forEach((row, b) => row.forEach((d, h) => {
    const here = b === blockOf(look) && (headOf(look) < 0 || h === headOf(look)) ? "here" : "";
    const tint = color(0.15 + 0.65 * (h / Math.max(heads - 1, 1)));
    parts.push(`<circle class="${here}" data-block="${b}" data-head="${h}" cx="${x(b)}" cy="${y(d)}" r="5" fill="rgb(${tint})"><title>block ${blocks[b]}, head ${h}: ${d.toFixed(1)} pixels</title></circle>`);
  }));
  svg.innerHTML = parts.join("");
  svg.setAttribute("aria-label", `Mean attention distance of each head, by block: ${titleOf(look)}`);
}

function drawSimilarity(canvas, { similarity, rows, columns }) {
  const N = rows * columns, gap = 1, w = columns + gap, h = rows + gap;
  canvas.width = w * columns - gap; canvas.height = h * rows - gap;
  const pen = canvas.getContext("2d"), tile = document.createElement("canvas");
  for (let q = 0; q < N; q++) {
    paint(tile, { rows, columns }, inHeat(similarity.subarray(q * N, (q + 1) * N), 0, 255));
    pen.drawImage(tile, (q % columns) * w, Math.floor(q / columns) * h);
  }
}

// ---- choosing ----
const make = (kind, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
};
const button = (onclick, ...children) => make("button", { type: "button", onclick }, ...children);
const set = (change) => { Object.assign(S, change); draw(); };
const patchMode = () => (S.mode === "relevance" ? "attention" : S.mode); // which no patch has
const hold = (query) => set({ query, hover: null, held: true, mode: patchMode() });
const ask = (query) => set({ query, hover: null, held: false, mode: patchMode() });

// The picture and all facts of the images chosen, at once, and their attention when it is read.
async function choose(change = {}) {
  const before = { ...S };
  Object.assign(S, change);
  if (S.beside === `image ${S.image}`) S.beside = `image ${before.image}`;
  if (S.beside === `model ${S.model}`) S.beside = `model ${before.model}`;
  const looks = shown(), models = new Set(looks.map((look) => look.model));
  document.body.classList.toggle("two", looks.length > 1);
  $("model").textContent = `What ${[...models].map((m) => m.name).join(" and ")} attend${models.size > 1 ? "" : "s"} to`;
  $("about").textContent = [...models].map((m) =>
    `${models.size > 1 ? m.name + ": " : ""}${m.blocks.length} blocks of ${m.heads} heads; ${m.rows} x ${m.columns} patches of an image of ${m.width} x ${m.height} pixels; attention in ${m.looks[S.image].levels} levels.`,
  ).join(" ") + " All counts begin at 0.";
  all("#images button").forEach((one, i) => one.setAttribute("aria-pressed", i === S.image));
  $("models").value = S.model;
  $("beside").replaceChildren(...besides().map(([value, text]) => make("option", { value, textContent: text })));
  $("beside").value = S.beside;
  looks.forEach(showFacts);
  await Promise.all(looks.filter((look) => !look.data).map((look) => (look.reading ??= read(look))));
  if (shown().some((look, p) => look !== looks[p])) return; // another choice came meanwhile
  looks.forEach(showParts);
  draw();
  document.body.dataset.ready = [S.model, S.image, S.beside].join();
}
const besides = () => [["", "nothing"],
  ...F.models.map((m, k) => [`model ${k}`, `${m.name}, same image`]).filter((_, k) => k !== S.model),
  ...F.images.map((name, k) => [`image ${k}`, F.models.length > 1 ? `${name}, same model` : name]).filter((_, k) => k !== S.image)];

function showFacts(look, p) {
  const figure = $("stage").children[p], { model } = look, picture = figure.querySelector("img");
  figure.querySelector("figcaption").textContent = titleOf(look);
  picture.src = look.picture;
  picture.alt = titleOf(look);
  figure.querySelector(".picture").style.setProperty("--aspect", `${model.width / model.height}`);
  if (!look.data) figure.querySelector(".heat").style.opacity = 0;
  for (const id of ["heads", "classes", "components", "distance", "similarity"]) $(id).children[p].dataset.name = titleOf(look);
  $("classes").children[p].replaceChildren(...look.predictions.map(({ label, probability, value }, rank) => {
    const bar = make("i"), one = button(() => set({ mode: "relevance", label }), bar, make("span", { textContent: label }), make("span", { textContent: value === undefined ? percent(probability) : value }));
    bar.style.width = `${100 * (probability ?? 0)}%`;
    one.dataset.rank = rank;
    return one;
  }));
  if (!look.predictions.length) $("classes").children[p].textContent = "no classes";
}

function showParts(look, p) {
  const { model, data } = look, { N } = sizeOf(model);
  $("heads").children[p].replaceChildren(...Array.from({ length: model.heads + 1 }, (_, h) => {
    const head = h - 1, one = button(() => set({ head, mode: "attention" }), make("canvas"), head < 0 ? "mean" : `head ${head}`);
    one.dataset.head = head;
    return one;
  }));
  $("components").children[p].replaceChildren(...(data.components ? model.blocks : []).map((name, b) => {
    const canvas = make("canvas");
    paint(canvas, model, inColor(data.components.subarray(3 * N * b, 3 * N * (b + 1))));
    return button(() => set({ block: b, mode: "components" }), canvas, `block ${name}`);
  }));
  $("similarity").children[p].hidden = !model.similarity || (p > 0 && model === shown()[0].model);
  if (model.similarity) drawSimilarity($("similarity").children[p].firstChild, model);
  const some = (what) => shown().some(what), option = (mode, there) => { document.querySelector(`#modes [value=${mode}]`).parentElement.hidden = !there; };
  $("places").hidden = !some((one) => one.model.similarity); option("position", !$("places").hidden);
  $("principal").hidden = !some((one) => one.explained); option("components", !$("principal").hidden);
  $("answers").hidden = !some((one) => one.predictions.length); option("relevance", !$("answers").hidden);
}

function patchAt(event, { rows, columns }) {
  const box = event.currentTarget.getBoundingClientRect();
  const share = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
  return centre({ rows, columns }, Math.floor(share[0] * rows), Math.floor(share[1] * columns));
}
const same = (a, b) => String(a) === String(b);
function listen(picture, p) {
  const model = () => shown()[p].model;
  picture.onpointermove = (e) => { if (e.pointerType === "mouse" && !S.held) { const hover = patchAt(e, model()); if (!same(hover, S.hover)) set({ hover }); } };
  picture.onpointerleave = () => { if (S.hover) set({ hover: null }); };
  picture.onclick = (e) => { const query = patchAt(e, model()); if (S.held && same(query, S.query)) ask(query); else hold(query); };
  picture.onkeydown = (e) => {
    const [rows, columns] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key] ?? [0, 0];
    if ((!rows && !columns) || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const m = model(), from = Array.isArray(S.query) ? S.query : centre(m, m.rows >> 1, m.columns >> 1);
    hold(centre(m, Math.floor(from[0] * m.rows) + rows, Math.floor(from[1] * m.columns) + columns));
  };
}
const KEYS = {
  c: () => ask("class token"), m: () => ask(MEAN),
  ",": () => set({ block: Math.max(S.block - 1, 0) }), ".": () => set({ block: Math.min(S.block + 1, $("block").max) }),
  g: () => set({ head: Math.max(S.head - 1, -1) }), h: () => set({ head: Math.min(S.head + 1, $("head").max) }),
  i: () => choose({ image: (S.image + 1) % F.images.length }),
  b: () => { const options = besides().map(([value]) => value); choose({ beside: options[(options.indexOf(S.beside) + 1) % options.length] }); },
  "?": () => ($("help").open ? $("help").close() : $("help").showModal()),
};
MODES.forEach((mode, k) => { KEYS[k + 1] = () => { if (!document.querySelector(`#modes [value=${mode}]`).parentElement.hidden) set({ mode }); }; });

function start() {
  for (let p = 0; p < 2; p++) {
    $("stage").append($("pane").content.cloneNode(true));
    listen($("stage").children[p].querySelector(".picture"), p);
    $("similarity").children[p].firstChild.onclick = (e) => set({ query: patchAt(e, shown()[p].model), hover: null, held: true, mode: "position" });
    $("distance").children[p].onclick = ({ target: { dataset } }) => { if (dataset.block) set({ block: Number(dataset.block), head: Number(dataset.head), mode: "attention" }); };
  }
  for (const bar of all(".scale")) bar.style.background = `linear-gradient(90deg, ${INFERNO})`;
  F.models[0].looks.forEach((look, i) => $("images").append(button(() => choose({ image: i }), make("img", { src: look.picture, alt: "" }), make("span", { textContent: F.images[i] }))));
  F.models.forEach((m, k) => $("models").append(make("option", { value: k, textContent: m.name })));
  $("images").hidden = F.images.length < 2;
  $("choose").hidden = F.models.length < 2;
  $("compare").hidden = LOOKS.length < 2;
  for (const name of new Set([MEAN, ...F.models.flatMap((m) => m.names)])) $("queries").append(button(() => ask(name), name));
  if (!F.models.some((m) => m.names.includes(S.query))) S.query = MEAN;
  $("smooth").checked = F.models[0].width >= 96; // few pixels are looked at one by one
  $("models").oninput = (e) => choose({ model: Number(e.target.value) });
  $("beside").oninput = (e) => choose({ beside: e.target.value });
  for (const input of all("#modes input")) input.oninput = () => set({ mode: input.value });
  $("block").oninput = (e) => set({ block: Number(e.target.value) });
  $("head").oninput = (e) => set({ head: Number(e.target.value) });
  for (const id of ["opacity", "smooth", "reverse"]) $(id).oninput = draw;
  $("helper").onclick = KEYS["?"];
  onresize = draw;
  onkeydown = (e) => {
    const act = KEYS[e.key], writes = e.key !== "?" && e.target.closest?.("select, dialog");
    if (act && !writes && $("keys").checked && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); act(); }
  };
  return choose();
}
start().catch((error) => {
  for (const said of all(".said")) said.textContent = "This page cannot be shown: " + error.message;
  throw error;
});
