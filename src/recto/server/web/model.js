// Embed queries in the browser with the body of recto-1, as its int8 graph does: bpe.py and weights.py in
// embedders/granite/ and scripts/make_graph.py explain the steps. Sums of int8 products are exact; the rest differs in the last digits.

const HIDDEN = 384;
const HEADS = 12;
const HEAD = HIDDEN / HEADS;
const GROUP = 64; // numbers of a token's row that share a scale
const EPSILON = 1e-12;
const STEP = 65_536; // weights between two looks at the clock: the first steps are slow, until the code is compiled
const START = 0;
const END = 2;
const SPECIAL = { "<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 50264 };
const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(
  `'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
const SPECIAL_PARTS = new RegExp(`(<s>|<pad>|</s>|<unk>|[${SPACE}]*<mask>)`, "u"); // without the space before <mask>
const TWO_SUMS = 2 ** 27; // two exact sums fit into one double: each is below 2 ** 26
const ROUND = 1.5 * 2 ** 52; // adding and subtracting it rounds to the nearest integer, halves to the even one

/**
 * Return the content of a model file: a line of JSON with the type, offset and length of each array, then their bytes.
 * The first bytes of all numbers of an array come first, then their second ones.
 */
export function readModel(buffer) {
  const bytes = new Uint8Array(buffer);
  const end = bytes.indexOf(10);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  const types = { b: Int8Array, f: Float32Array, I: Uint32Array, H: Uint16Array };
  const read = ([name, [type, offset, length]]) => {
    const size = types[type].BYTES_PER_ELEMENT;
    if (size === 1) return [name, new Int8Array(buffer, end + 1 + offset, length)];
    const ordered = new Uint8Array(size * length);
    for (let byte = 0, at = end + 1 + offset; byte < size; byte += 1) {
      for (let place = byte; place < ordered.length; place += size, at += 1) ordered[place] = bytes[at];
    }
    return [name, new types[type](ordered.buffer)];
  };
  return { ...header, arrays: Object.fromEntries(Object.entries(header.arrays).map(read)) };
}

/** Byte-pair encoding: of all neighbouring pairs that a rule joins, the one of the earliest rule is joined first. */
export class Tokenizer {
  #letters;
  #results;
  #rules = new Map();
  #cache = new Map();

  constructor({ letters, pairs, results }) {
    [this.#letters, this.#results] = [letters, results];
    pairs.forEach((pair, rule) => this.#rules.set(pair, rule));
  }

  /** Return the tokens of a text; a longer text is cut. */
  encode(text, most) {
    const tokens = [START];
    for (const part of text.split(SPECIAL_PARTS)) {
      const special = part.slice(part.indexOf("<"));
      if (special in SPECIAL) tokens.push(SPECIAL[special]);
      else for (const [word] of part.matchAll(WORDS)) tokens.push(...this.#word(word));
    }
    return [...tokens.slice(0, most - 1), END];
  }

  #word(word) {
    let tokens = this.#cache.get(word);
    if (!tokens) {
      tokens = this.#merge(Array.from(new TextEncoder().encode(word), (byte) => this.#letters[byte]));
      if (this.#cache.size < 1000) this.#cache.set(word, tokens);
    }
    return tokens;
  }

  #merge(tokens) {
    for (;;) {
      const rules = tokens.slice(1).map((token, place) => this.#rules.get(tokens[place] * 65536 + token) ?? Infinity);
      const best = rules.reduce((rule, other) => Math.min(rule, other), Infinity);
      if (best === Infinity) return tokens;
      const merged = [];
      for (let place = 0; place < tokens.length; place += 1) {
        const isPair = rules[place] === best;
        merged.push(isPair ? this.#results[best] : tokens[place]);
        if (isPair) place += 1;
      }
      tokens = merged;
    }
  }
}

/** Compute the normalised vector of a text from the rows of its tokens, in steps of a few milliseconds. */
export function* embed({ arrays, scales, layers }, rows) {
  const { positions } = arrays;
  const count = rows.length;
  const x = new Float32Array(count * HIDDEN);
  rows.forEach(({ numbers, scales: own }, token) => {
    for (let place = 0; place < HIDDEN; place += 1) {
      x[token * HIDDEN + place] = Math.fround(numbers[place] * own[(place / GROUP) | 0]) + positions[token * HIDDEN + place];
    }
  });
  const linear = (input, name) => multiply(input, arrays, name, scales[name]);
  const norm = (input, name) => normalise(input, arrays[`${name}.w`], arrays[`${name}.b`]);
  let hidden = norm(x, "emb_ln");
  for (let layer = 0; layer < layers; layer += 1) {
    const name = `l${layer}`;
    let own = hidden;
    let attended;
    if (layer < layers - 1) {
      const mixed = yield* linear(hidden, `${name}.qkv`);
      attended = yield* attend(mixed, 3 * HIDDEN, count, mixed, 3 * HIDDEN, HIDDEN, count);
    } else {
      own = hidden.slice(0, HIDDEN); // of the first token only: the others are not used after it
      const [query, others] = [yield* linear(own, `${name}.q`), yield* linear(hidden, `${name}.kv`)];
      attended = yield* attend(query, HIDDEN, 1, others, 2 * HIDDEN, 0, count);
    }
    own = norm(sum(own, yield* linear(attended, `${name}.ao`)), `${name}.aln`);
    const inner = gelu(yield* linear(own, `${name}.f1`));
    hidden = norm(sum(own, yield* linear(inner, `${name}.f2`)), `${name}.fln`);
  }
  const length = Math.hypot(...hidden);
  return hidden.map((number) => number / length);
}

function sum(one, other) {
  for (let place = 0; place < one.length; place += 1) other[place] += one[place];
  return other;
}

function normalise(input, weights, bias) {
  const output = new Float32Array(input.length);
  for (let start = 0; start < input.length; start += HIDDEN) {
    let mean = 0;
    for (let place = 0; place < HIDDEN; place += 1) mean += input[start + place];
    mean /= HIDDEN;
    let variance = 0;
    for (let place = 0; place < HIDDEN; place += 1) variance += (input[start + place] - mean) ** 2;
    const factor = 1 / Math.sqrt(variance / HIDDEN + EPSILON);
    for (let place = 0; place < HIDDEN; place += 1) {
      output[start + place] = (input[start + place] - mean) * factor * weights[place] + bias[place];
    }
  }
  return output;
}

function gelu(values) {
  for (let place = 0; place < values.length; place += 1) {
    const x = values[place];
    values[place] = 0.5 * x * (1 + Math.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
  return values;
}

/** Attention of some queries to all tokens; `keys` has keys and values beside each other, from an offset on. */
function* attend(queries, queryWidth, queryCount, keys, width, offset, count) {
  const output = new Float32Array(queryCount * HIDDEN);
  const scores = new Float64Array(count);
  for (let query = 0; query < queryCount; query += 1) {
    if (query % 8 === 7) yield;
    for (let head = 0; head < HIDDEN; head += HEAD) {
      let largest = -Infinity;
      for (let token = 0; token < count; token += 1) {
        let score = 0;
        for (let place = head; place < head + HEAD; place += 1) {
          score += queries[query * queryWidth + place] * keys[token * width + offset + place];
        }
        scores[token] = score / Math.sqrt(HEAD);
        largest = Math.max(largest, scores[token]);
      }
      let total = 0;
      for (let token = 0; token < count; token += 1) total += scores[token] = Math.exp(scores[token] - largest);
      for (let token = 0; token < count; token += 1) {
        const share = scores[token] / total;
        for (let place = head; place < head + HEAD; place += 1) {
          output[query * HIDDEN + place] += share * keys[token * width + offset + HIDDEN + place];
        }
      }
    }
  }
  return output;
}

/** Multiply by int8 weights after quantizing the input: with a measured scale, or each token by its largest number. */
function* multiply(input, arrays, name, measured) {
  const { [`${name}.w8`]: weights, [`${name}.scales`]: scales, [`${name}.b`]: bias, [`${name}.inverse`]: inverse } = arrays;
  const rows = scales.length;
  const columns = weights.length / rows;
  const count = input.length / columns;
  const [scale, zero] = measured ?? [Math.fround(1 / 127), 128];
  const factors = new Float64Array(count);
  const pairs = Array.from({ length: Math.ceil(count / 2) }, () => new Float64Array(columns));
  const values = new Float32Array(columns);
  for (let token = 0; token < count; token += 1) {
    let largest = 0;
    for (let place = 0; place < columns; place += 1) {
      values[place] = inverse ? input[token * columns + place] * inverse[place] : input[token * columns + place];
      largest = Math.max(largest, Math.abs(values[place]));
    }
    factors[token] = measured ? 1 : largest;
    const pair = pairs[token >> 1];
    const shift = token & 1 ? TWO_SUMS : 1;
    for (let place = 0; place < columns; place += 1) {
      const value = measured ? values[place] : Math.fround(values[place] / largest);
      const rounded = Math.fround(value / scale) + ROUND - ROUND + zero;
      pair[place] += (Math.max(0, Math.min(255, rounded)) - zero) * shift;
    }
  }
  const output = new Float32Array(count * rows);
  const sums = new Float64Array(pairs.length * rows);
  let done = 0;
  while (done < pairs.length) {
    const size = [1, 1, 2, 2][pairs.length - done] ?? 4;
    const multiplyRows = { 1: multiply1, 2: multiply2, 4: multiply4 }[size];
    for (let row = 0; row < rows; row += Math.ceil(STEP / columns)) {
      multiplyRows(weights, row, Math.min(rows, row + Math.ceil(STEP / columns)), rows, columns, pairs.slice(done), sums, done * rows);
      yield;
    }
    done += size;
  }
  for (let pair = 0; pair < pairs.length; pair += 1) {
    for (let row = 0; row < rows; row += 1) {
      const both = sums[pair * rows + row];
      const second = both / TWO_SUMS + ROUND - ROUND;
      const factor = scale * scales[row];
      output[2 * pair * rows + row] = Math.fround((both - second * TWO_SUMS) * factor) * factors[2 * pair] + bias[row];
      if (2 * pair + 1 < count) {
        output[(2 * pair + 1) * rows + row] = Math.fround(second * factor) * factors[2 * pair + 1] + bias[row];
      }
    }
  }
  return output;
}

// The three functions below are the inner loops: more sums at a time mean fewer conversions of weights.

function multiply4(weights, from, to, rows, columns, [one, two, three, four], sums, start) {
  for (let row = from, at = from * columns; row < to; row += 1) {
    let a = 0, b = 0, c = 0, d = 0;
    for (let place = 0; place < columns; place += 1, at += 1) {
      const weight = weights[at];
      a += weight * one[place];
      b += weight * two[place];
      c += weight * three[place];
      d += weight * four[place];
    }
    sums[start + row] = a;
    sums[start + rows + row] = b;
    sums[start + 2 * rows + row] = c;
    sums[start + 3 * rows + row] = d;
  }
}

function multiply2(weights, from, to, rows, columns, [one, two], sums, start) {
  for (let row = from, at = from * columns; row < to; row += 1) {
    let a = 0, b = 0;
    for (let place = 0; place < columns; place += 1, at += 1) {
      const weight = weights[at];
      a += weight * one[place];
      b += weight * two[place];
    }
    sums[start + row] = a;
    sums[start + rows + row] = b;
  }
}

function multiply1(weights, from, to, rows, columns, [pair], sums, start) {
  for (let row = from, at = from * columns; row < to; row += 1) {
    let a = 0;
    for (let place = 0; place < columns; place += 1, at += 1) a += weights[at] * pair[place];
    sums[start + row] = a;
  }
}
