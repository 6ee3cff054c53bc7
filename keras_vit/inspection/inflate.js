"use strict";
// Deflate (RFC 1951) after the two bytes of zlib, for browsers without DecompressionStream.
function inflate(input) {
  let pos = 2, bit = 0, have = 0, out = new Uint8Array(1 << 16), size = 0;
  const bits = (n) => {
    while (have < n) { bit |= input[pos++] << have; have += 8; }
    const value = bit & ((1 << n) - 1);
    bit >>>= n; have -= n;
    return value;
  };
  const put = (value) => {
    if (size === out.length) { const grown = new Uint8Array(2 * size); grown.set(out); out = grown; }
    out[size++] = value;
  };
  const tree = (lengths) => {  // canonical Huffman code: how many of each length, and the symbols
    const count = new Uint16Array(16), start = new Uint16Array(16), symbols = new Uint16Array(lengths.length);
    for (const n of lengths) count[n]++;
    count[0] = 0;
    for (let n = 1; n < 16; n++) start[n] = start[n - 1] + count[n - 1];
    lengths.forEach((n, s) => { if (n) symbols[start[n]++] = s; });
    return { count, symbols };
  };
  const symbol = ({ count, symbols }) => {
    for (let n = 1, code = 0, first = 0, index = 0; n < 16; n++) {
      code |= bits(1);
      if (code - count[n] < first) return symbols[index + code - first];
      index += count[n]; first = (first + count[n]) << 1; code <<= 1;
    }
    throw new Error("The page is damaged.");
  };
  const steps = (start, groups, per) => {  // base values and extra bits of lengths and distances
    const base = [], extra = [];
    for (let i = 0, value = start; i < groups; i++) {
      const e = Math.max(0, Math.floor(i / per) - 1);
      base.push(value); extra.push(e); value += 1 << e;
    }
    return { base, extra };
  };
  const len = steps(3, 29, 4), dist = steps(1, 30, 2);
  len.base[28] = 258; len.extra[28] = 0;
  const order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
  for (let last = 0; !last;) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      bit = have = 0;
      const n = input[pos] | (input[pos + 1] << 8);
      pos += 4;
      for (let i = 0; i < n; i++) put(input[pos++]);
      continue;
    }
    let literals, distances;
    if (kind === 1) {
      literals = tree(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)));
      distances = tree(new Array(30).fill(5));
    } else {
      const a = bits(5) + 257, b = bits(5) + 1, c = bits(4) + 4, small = new Array(19).fill(0), all = [];
      for (let i = 0; i < c; i++) small[order[i]] = bits(3);
      const codes = tree(small);
      while (all.length < a + b) {
        const s = symbol(codes);
        if (s < 16) { all.push(s); continue; }
        const value = s === 16 ? all[all.length - 1] : 0;
        for (let n = s === 16 ? bits(2) + 3 : s === 17 ? bits(3) + 3 : bits(7) + 11; n > 0; n--) all.push(value);
      }
      literals = tree(all.slice(0, a)); distances = tree(all.slice(a));
    }
    for (let s; (s = symbol(literals)) !== 256;) {
      if (s < 256) { put(s); continue; }
      const n = len.base[s - 257] + bits(len.extra[s - 257]), d = symbol(distances);
      const back = dist.base[d] + bits(dist.extra[d]);
      for (let i = 0; i < n; i++) put(out[size - back]);
    }
  }
  return out.slice(0, size);
}
