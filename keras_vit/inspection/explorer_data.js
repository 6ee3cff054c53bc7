"use strict";
const $ = (id) => document.getElementById(id);
const all = (selector) => [...document.querySelectorAll(selector)];
const limited = (v, low, high) => Math.min(Math.max(v, low), high);
const MEAN = "mean of the patches", MODES = ["attention", "rollout", "relevance", "components", "position"];

// A look is one model and one image. Its picture and facts are there at once; its attention, which
// stands in the page below this script, is read and unpacked when it is first shown.
const F = JSON.parse($("index").textContent);
const LOOKS = F.models.flatMap((model, m) => model.looks.map((look, i) => Object.assign(look, { model, m, i })));
const S = {
  model: 0, image: 0, beside: F.models.length > 1 ? "model 1" : "", // or "image 1", or nothing
  mode: "attention", block: Math.max(...F.models.map((m) => m.blocks.length)) - 1, head: -1, // -1: mean
  query: "class token", // the name of a token; for a patch its centre as shares of [height, width]
  hover: null, held: false, label: null, // the patch under the mouse; the class of relevance
};

function shown() {
  const [what, index] = S.beside.split(" "), at = (m, i) => F.models[m].looks[i];
  const first = at(S.model, S.image);
  return what === "model" ? [first, at(index, S.image)] : what === "image" ? [first, at(S.model, index)] : [first];
}
const titleOf = (look) => (S.beside.startsWith("model") ? look.model.name : F.images[look.i]);

// ---- reading what was packed: base64, zlib, then square roots of shares of a row's largest ----
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
const unpacked = async (value) => (Array.isArray(value) ? Promise.all(value.map(unpack)) : value && unpack(value));
const parsed = new Promise((done) => (document.readyState === "loading" ? addEventListener("DOMContentLoaded", done) : done()));
async function read(look) {
  await parsed;
  const { model, m, i } = look;
  if (!$(`look-${m}-${i}`)) throw new Error("the file is not whole.");
  const packed = JSON.parse($(`look-${m}-${i}`).textContent);
  const values = await Promise.all(Object.values(packed).map(unpacked));
  model.similarity ??= await unpacked(JSON.parse($(`positions-${m}`).textContent));
  look.data = Object.fromEntries(Object.keys(packed).map((key, k) => [key, values[k]]));
}

// ---- numbers ----
const sizeOf = ({ rows, columns, learned }) => ({ N: rows * columns, T: learned + rows * columns });
const blockOf = (look) => Math.min(S.block, look.model.blocks.length - 1);
const headOf = (look) => (S.head < look.model.heads ? S.head : -1);
const rankOf = (look) => Math.max(look.predictions.findIndex(({ label }) => label === S.label), 0);
function tokenOf({ model: { learned, rows, columns, names } }) {
  const query = S.hover ?? S.query;
  if (!Array.isArray(query)) return names.indexOf(query); // -1, the mean of the patches, if there is none
  return learned + Math.floor(query[0] * rows) * columns + Math.floor(query[1] * columns);
}
const centre = ({ rows, columns }, row, column) =>
  [(limited(row, 0, rows - 1) + 0.5) / rows, (limited(column, 0, columns - 1) + 0.5) / columns];

// What `token` gives to all tokens, or gets from them: a row, or a column, of T x T matrices.
function line({ model, data, levels }, rollout, block, head, token) {
  const { N, T } = sizeOf(model), total = new Float64Array(T), reverse = $("reverse").checked;
  const [codes, scales, most] = rollout ? [data.rollout, data.rolloutScales, 255] : [data.attention, data.scales, levels - 1];
  const queries = token >= 0 ? [token] : Array.from({ length: N }, (_, i) => model.learned + i);
  const matrices = rollout ? [0] : Array.from({ length: head >= 0 ? 1 : model.heads }, (_, h) => block * model.heads + Math.max(head, h));
  for (const q of queries) for (const matrix of matrices) for (let k = 0; k < T; k++) {
    const row = matrix * T + (reverse ? k : q), key = reverse ? q : k;
    const root = (codes[row * T + key] / most) * (scales[row] / 255);
    total[k] += root * root;
  }
  return total.map((v) => v / (queries.length * matrices.length));
}

// What is drawn: values of the patches and their range, or colours; what the learned tokens get.
function current(look = shown()[0]) {
  const { model, data } = look, { N } = sizeOf(model), token = tokenOf(look);
  if (S.mode === "components") {
    return { colors: data.components?.subarray(3 * N * blockOf(look), 3 * N * (blockOf(look) + 1)) };
  }
  if (S.mode === "relevance") {
    return { values: Array.from(data.relevance[rankOf(look)] ?? [], (v) => v / 255), low: 0, high: 1 };
  }
  if (S.mode === "position") {
    const q = token - model.learned, known = model.similarity && q >= 0;
    return { values: known ? Array.from(model.similarity.subarray(q * N, (q + 1) * N), (v) => v / 127.5 - 1) : [], low: -1, high: 1 };
  }
  const found = line(look, S.mode === "rollout", blockOf(look), headOf(look), token), values = found.slice(model.learned);
  // In rollout few patches stand far above all others, which would be equally dark beside them.
  const high = S.mode === "rollout" ? values.slice().sort()[Math.floor(0.97 * N)] : Math.max(...values);
  return { values, low: 0, high: high || 1, learned: Array.from(found.slice(0, model.learned)) };
}

// ---- words ----
const percent = (v) => (v < 1e-4 ? "< 0.01 %" : (100 * v).toPrecision(v < 0.1 ? 2 : 3) + " %");
const patchName = ({ columns }, i) => `row ${Math.floor(i / columns)}, column ${i % columns}`;
function tokenName(model, token) {
  return token < 0 ? MEAN : token < model.learned ? model.names[token] : "patch in " + patchName(model, token - model.learned);
}
function words(look, { values, learned, colors }) {
  const { model } = look, token = tokenOf(look), block = `block ${model.blocks[blockOf(look)]}`;
  const who = tokenName(model, token).replace(/^./, (c) => c.toUpperCase());
  if (S.mode === "components") {
    if (!colors) return "All patches are alike: there are no components.";
    return `Patches after ${block}: red, green and blue are ${look.explained[blockOf(look)].map(percent).join(", ")} of the variance.`;
  }
  const best = values.indexOf(Math.max(...values)), most = patchName(model, best);
  if (S.mode === "relevance") {
    return best < 0 ? "This model has no classes." : `Relevance for ${look.predictions[rankOf(look)].label}: most from the patch in ${most}.`;
  }
  if (S.mode === "position") {
    if (!model.similarity) return "This model has no position embedding of each patch.";
    return best < 0 ? "Choose a patch: only patches have a place." : `${who}: cosine of its position embedding with those of all patches.`;
  }
  const where = S.mode === "rollout" ? "rollout" : `${block}, ${headOf(look) < 0 ? "mean of the heads" : "head " + headOf(look)}`;
  if ($("reverse").checked) return `${who}, ${where}: looked at most by ${most} (${percent(values[best])} of what that looks at).`;
  const given = learned.map((v, i) => `; to ${model.names[i]} ${percent(v)}`).join("");
  return `${who}, ${where}: most to ${most} (${percent(values[best])})${given}.`;
}
